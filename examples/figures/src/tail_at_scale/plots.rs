use super::row::Row;
use crate::latencies::{TAIL, published};
use crate::plot::{Axis, Corner, Panel, Plot};

/// The distributions, with their tails.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let series = rows
        .iter()
        .map(|row| row.latencies.tail(row.mode.name(), row.mode as usize));
    let p999 = rows
        .iter()
        .filter_map(|row| Some((3.0, row.mode.published()?.0)));
    Plot {
        name: "tail-at-scale-tail",
        title: "A query that ends with the last of 1,000 keys",
        x: TAIL,
        legend: Corner::Left,
        height: 500,
        panels: vec![Panel {
            y: Axis::logarithmic("latency of a query in ms", 10.0, 10_000.0),
            series: series.chain([published(p999)]).collect(),
        }],
    }
}
