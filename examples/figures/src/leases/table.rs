//! The results, and their bounds.

use comfy_table::Table;

use super::row::Row;
use crate::report;

pub(crate) fn table(rows: &[Row]) -> Table {
    let header = [
        "mode",
        "instances",
        "load",
        "lease ms",
        "admitted / limit",
        "bound",
        "worst second / limit",
        "admitted",
        "round trips per decision",
        "per second",
        "p50 ms",
        "p99 ms",
    ];
    report::table(header, 1, rows.iter().map(line))
}

fn line(row: &Row) -> [String; 12] {
    let bound = row.bound_over_limit;
    [
        row.mode.into(),
        row.instances.to_string(),
        format!("{:.1}", row.load),
        row.lease_ms.map_or_else(String::new, |ms| ms.to_string()),
        format!("{:.3}", row.admitted_over_limit),
        bound.map_or_else(|| "none".into(), |bound| format!("≤ {bound:.3}")),
        format!("{:.2}", row.worst_second_over_limit),
        format!("{:.1} %", 100.0 * row.admitted_ratio),
        format!("{:.3}", row.round_trips_per_decision),
        format!("{:.0}", row.round_trips_per_second),
        format!("{:.0}", row.p50_ms),
        format!("{:.0}", row.p99_ms),
    ]
}
