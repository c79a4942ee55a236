//! Measured and published values.

use comfy_table::Table;

use super::row::Row;
use crate::report;

pub(crate) fn table(rows: &[Row]) -> Table {
    let header = [
        "mode",
        "p50 ms",
        "p99 ms",
        "p99.9 ms",
        "published",
        "extra load",
        "published",
        "queries",
    ];
    report::table(header, 1, rows.iter().map(line))
}

fn line(row: &Row) -> [String; 8] {
    let ms = |millis: f64| format!("{millis:.1}");
    let share = |share: f64| format!("{share:.4}");
    let published = row.mode.published();
    [
        row.mode.name().into(),
        ms(row.p50_ms),
        ms(row.p99_ms),
        ms(row.p999_ms),
        published.map(|(p999, _)| ms(p999)).unwrap_or_default(),
        share(row.extra_load),
        published.map(|(_, extra)| share(extra)).unwrap_or_default(),
        row.queries.to_string(),
    ]
}
