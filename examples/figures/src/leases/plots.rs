//! Round trips over the lease time.

use super::fleet::Fleet;
use super::row::Row;
use super::{LARGE, LEASES_MS, LOADS, MEDIUM, SMALL};
use crate::plot::{Axis, Mark, Panel, Plot, Series};

pub(crate) fn plots(rows: &[Row]) -> Vec<Plot> {
    let panels = LOADS
        .into_iter()
        .zip(["at 0.8 times the limit", "at 3 times the limit"]);
    let end = LEASES_MS.iter().copied().max().unwrap_or_default() as f64;
    vec![Plot {
        name: "leases-round-trips",
        title: "Round trips per decision of a fleet with leases",
        caption: "The instances share one token bucket, of 50 tokens per second and instance. 20 instances are 2 ms away from the \
                  backend. The larger fleets are in three regions, with round trips of 1, 40 and 80 ms. Without leases each \
                  decision takes one round trip. Where lines coincide, the larger fleet is on top.",
        x: Axis::linear("lease time in ms", end),
        height: 250,
        panels: panels
            .map(|(load, title)| panel(rows, load, title))
            .collect(),
    }]
}

fn panel(rows: &[Row], load: f64, title: &'static str) -> Panel {
    let fleets = [
        (SMALL, "20 instances"),
        (MEDIUM, "100 instances"),
        (LARGE, "1,000 instances"),
    ];
    let series = fleets.into_iter().enumerate();
    let series = series.map(|(number, (fleet, name))| Series {
        name,
        mark: Mark::Line(number),
        points: points(rows, fleet, load),
    });
    Panel {
        title,
        y: Axis::linear("round trips per decision", 1.0),
        series: series.collect(),
    }
}

fn points(rows: &[Row], fleet: Fleet, load: f64) -> Vec<(f64, f64)> {
    rows.iter()
        .filter(|row| row.mode == "lease" && row.instances == fleet.instances)
        .filter(|row| (row.load - load).abs() < 1e-9)
        .filter_map(|row| Some((row.lease_ms? as f64, row.round_trips_per_decision)))
        .collect()
}
