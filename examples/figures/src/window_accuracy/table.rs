//! Measured and published values.

use comfy_table::Table;

use super::published::Published;
use super::row::Row;
use crate::report;

pub(crate) fn table(rows: &[Row]) -> Table {
    let header = [
        "algorithm",
        "traffic",
        "load",
        "worst window",
        "published",
        "admitted",
        "count error",
        "abs. error",
        "wrongly refused",
        "wrongly admitted",
    ];
    report::table(header, 2, rows.iter().map(line))
}

fn line(row: &Row) -> [String; 10] {
    let published = match Published::of(row.algorithm, row.traffic) {
        None => String::new(),
        Some(Published::About(value)) => format!("{value:.2}"),
        Some(Published::AtMost(value)) => format!("≤ {value:.2}"),
    };
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    [
        row.algorithm.name().into(),
        row.traffic.into(),
        format!("{:.2}", row.load),
        format!("{:.2}", row.worst_window_over_limit),
        published,
        percent(row.admitted_ratio),
        format!("{:+.2}", row.mean_count_error),
        format!("{:.2}", row.mean_abs_error),
        percent(row.wrongly_refused),
        percent(row.wrongly_admitted),
    ]
}
