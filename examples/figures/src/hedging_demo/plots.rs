use super::row::Row;
use crate::latencies::{TAIL, published};
use crate::plot::{Axis, Corner, Panel, Plot};

/// The distributions, with their tails.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let series = rows
        .iter()
        .map(|row| row.latencies.tail(row.mode.name(), row.mode as usize));
    let p99 = rows
        .iter()
        .filter_map(|row| Some((2.0, row.mode.published()?)));
    Plot {
        name: "hedging-demo-tail",
        title: "A service that takes 115 ms instead of 15 now and then",
        x: TAIL,
        legend: Corner::Left,
        height: 500,
        panels: vec![Panel {
            y: Axis::logarithmic("latency in ms", 10.0, 200.0),
            series: series.chain([published(p99)]).collect(),
        }],
    }
}
