use super::row::Row;
use crate::latencies::TAIL;
use crate::plot::{Axis, Corner, Panel, Plot};

/// The distributions, with their tails.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let series = rows
        .iter()
        .map(|row| row.latencies.tail(row.mode.name(), row.mode as usize));
    Plot {
        name: "hedging-demo-tail",
        title: "A service that takes 115 ms instead of 15 now and then",
        x: TAIL,
        legend: Corner::Left,
        height: 500,
        panels: vec![Panel {
            y: Axis {
                label: "latency in ms",
                end: 140.0,
            },
            series: series.collect(),
        }],
    }
}
