use super::row::Row;
use crate::latencies::{TAIL, published};
use crate::plot::{Axis, Panel, Plot};

/// Plots the distribution of the latencies.
pub(crate) fn tail(rows: &[Row]) -> Plot {
    let series = rows
        .iter()
        .map(|row| row.latencies.tail(row.mode.name(), row.mode as usize));
    let p99 = rows
        .iter()
        .filter_map(|row| Some((2.0, row.mode.published()?)));
    Plot {
        name: "hedging-demo-tail",
        title: "Latency with and without hedging",
        caption: "A service takes 15 ms, and 115 ms for 3 % of the attempts. none: without a layer. hedged: HedgeLayer with delays \
                  of 21 and 42 ms. fan-out: three attempts at the same time. percentile: the default, which learns its delay and \
                  sends 3 % more requests. Both axes are logarithmic. Rings: p99 published in \"hedged requests in Go\" (2020), \
                  where the network adds about 2 ms.",
        x: TAIL,
        height: 400,
        panels: vec![Panel {
            title: "",
            y: Axis::logarithmic("latency in ms", 10.0, 200.0),
            series: series.chain([published(p99)]).collect(),
        }],
    }
}
