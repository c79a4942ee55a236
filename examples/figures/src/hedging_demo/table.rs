//! Measured and published values.

use comfy_table::Table;

use super::row::Row;
use crate::report;

pub(crate) fn table(rows: &[Row]) -> Table {
    let header = [
        "mode",
        "p50 ms",
        "p90 ms",
        "p95 ms",
        "p99 ms",
        "published",
        "p99.9 ms",
        "max ms",
        "extra load",
        "requests",
    ];
    report::table(header, 1, rows.iter().map(line))
}

fn line(row: &Row) -> [String; 10] {
    let ms = |millis: f64| format!("{millis:.1}");
    [
        row.mode.name().into(),
        ms(row.p50_ms),
        ms(row.p90_ms),
        ms(row.p95_ms),
        ms(row.p99_ms),
        row.mode.published().map(ms).unwrap_or_default(),
        ms(row.p999_ms),
        ms(row.max_ms),
        format!("{:.4}", row.extra_load),
        row.requests.to_string(),
    ]
}
