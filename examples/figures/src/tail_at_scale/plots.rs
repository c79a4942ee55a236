use super::row::Row;
use crate::latencies::TAIL;
use crate::plot::{Axis, Corner, Panel, Plot};

/// The distributions, with their tails: all of them, and those with hedges by themselves, which could
/// not be told apart beside the other.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let panel = |end, shown: &[Row]| {
        let tail = |row: &Row| row.latencies.tail(row.mode.name(), row.mode as usize);
        let y = Axis {
            label: "latency of a query in ms",
            end,
        };
        Panel {
            y,
            series: shown.iter().map(tail).collect(),
        }
    };
    let hedged = rows.get(1..).unwrap_or_default();
    Plot {
        name: "tail-at-scale-tail",
        title: "A query that ends with the last of 1,000 keys",
        x: TAIL,
        legend: Corner::Left,
        height: 400,
        panels: vec![panel(5000.0, rows), panel(120.0, hedged)],
    }
}
