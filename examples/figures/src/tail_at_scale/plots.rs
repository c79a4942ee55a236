use super::row::Row;
use crate::latencies::{TAIL, published};
use crate::plot::{Axis, Panel, Plot};

/// Plots the distribution of the latencies.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let series = rows
        .iter()
        .map(|row| row.latencies.tail(row.mode.name(), row.mode as usize));
    let p999 = rows
        .iter()
        .filter_map(|row| Some((3.0, row.mode.published()?.0)));
    Plot {
        name: "tail-at-scale-tail",
        title: "Latency of a query that waits for all of 1,000 keys",
        caption: "none: each key is read once. fixed: HedgeLayer reads a key again after 10 ms. percentile: HedgeLayer learns the \
                  98th percentile of the reads. Both send 2 % more reads. Both axes are logarithmic. Rings: p99.9 published in \"The \
                  Tail at Scale\" (Dean and Barroso, 2013).",
        x: TAIL,
        height: 400,
        panels: vec![Panel {
            title: "",
            y: Axis::logarithmic("latency of a query in ms", 10.0, 10_000.0),
            series: series.chain([published(p999)]).collect(),
        }],
    }
}
