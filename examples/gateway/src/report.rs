//! The demo's results, as a table or as JSON.

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::load::Answers;
use crate::profile::Profile;

/// One scenario's results; the field names are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    scenario: &'static str,
    profile: &'static str,
    requests: u64,
    /// 2xx ÷ requests that were not refused.
    success_ratio: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Counted at the upstream.
    upstream_requests: u64,
    /// Upstream requests ÷ requests that were not refused − 1.
    extra_load: f64,
    refused: u64,
}

impl Row {
    pub(crate) fn new(
        scenario: &'static str,
        profile: Profile,
        requests: u64,
        upstream_requests: u64,
        answers: &Answers,
    ) -> Self {
        let passed = (requests - answers.refused).max(1) as f64;
        let quantile = |q| milliseconds(answers.latency.value_at_quantile(q));
        Self {
            scenario,
            profile: profile.name(),
            requests,
            success_ratio: answers.succeeded as f64 / passed,
            p50_ms: quantile(0.50),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: milliseconds(answers.latency.max()),
            upstream_requests,
            extra_load: (upstream_requests as f64 - passed) / passed,
            refused: answers.refused,
        }
    }
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}

/// Rows aligned under the names of their fields, numbers to the right.
pub(crate) fn table(rows: &[Row]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header([
        "scenario",
        "profile",
        "requests",
        "success",
        "p50 ms",
        "p95 ms",
        "p99 ms",
        "max ms",
        "upstream",
        "extra load",
        "refused",
    ]);
    table.add_rows(rows.iter().map(|row| {
        [
            row.scenario.to_owned(),
            row.profile.to_owned(),
            row.requests.to_string(),
            format!("{:.4}", row.success_ratio),
            format!("{:.1}", row.p50_ms),
            format!("{:.1}", row.p95_ms),
            format!("{:.1}", row.p99_ms),
            format!("{:.1}", row.max_ms),
            row.upstream_requests.to_string(),
            format!("{:.3}", row.extra_load),
            row.refused.to_string(),
        ]
    }));
    for column in table.column_iter_mut().skip(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
