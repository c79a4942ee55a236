//! Round trips over the lease time.

use super::row::Row;
use super::{LEASES_MS, LOADS};
use crate::plot::{Axis, Corner, Mark, Panel, Plot, Series};

pub(crate) fn plots(rows: &[Row]) -> Vec<Plot> {
    let names = ["at 0.8 times the limit", "at 3 times the limit"];
    let series = LOADS.iter().zip(names).enumerate();
    let series = series.map(|(number, (&load, name))| Series {
        name,
        mark: Mark::Line(number),
        points: points(rows, load),
    });
    let end = LEASES_MS.iter().copied().max().unwrap_or_default() as f64;
    vec![Plot {
        name: "leases-round-trips",
        title: "Round trips of 20 instances with leases; without, 1 per decision",
        x: Axis::linear("lease time, ms", end),
        legend: Corner::Right,
        height: 400,
        panels: vec![Panel {
            y: Axis::linear("round trips per decision", 1.0),
            series: series.collect(),
        }],
    }]
}

fn points(rows: &[Row], load: f64) -> Vec<(f64, f64)> {
    let leases = rows.iter().filter(|row| row.mode == "lease");
    leases
        .filter(|row| (row.load - load).abs() < 1e-9)
        .filter_map(|row| Some((row.lease_ms? as f64, row.round_trips_per_decision)))
        .collect()
}
