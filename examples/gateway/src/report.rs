//! The demo's results, as a table or as JSON.

use std::collections::BTreeMap;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;

use crate::load::Answers;
use crate::profile::Profile;

/// One scenario's results; the field names are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    scenario: String,
    profile: &'static str,
    requests: u64,
    /// 2xx ÷ requests that were not rejected.
    success_ratio: f64,
    p50_ms: f64,
    p95_ms: f64,
    p99_ms: f64,
    max_ms: f64,
    /// Counted at the upstream.
    upstream_requests: u64,
    /// Upstream requests ÷ requests that were not rejected − 1.
    extra_load: f64,
    rejected: u64,
    #[serde(flatten)]
    fleet: Option<Fleet>,
}

/// Additional fields in the row of a fleet.
#[derive(Clone, Debug, Serialize)]
struct Fleet {
    gateways: usize,
    /// For each gateway: `admitted_1` and so on.
    #[serde(flatten)]
    apart: BTreeMap<String, u64>,
    admitted: u64,
    /// The number of requests that one limit admits in the elapsed time: burst + rate × time, rounded down.
    limit: u64,
    admitted_over_limit: f64,
}

impl Row {
    pub(crate) fn new(
        scenario: &str,
        profile: Profile,
        requests: u64,
        upstream_requests: u64,
        answers: &Answers,
    ) -> Self {
        let passed = (requests - answers.rejected).max(1) as f64;
        let quantile = |q| milliseconds(answers.latency.value_at_quantile(q));
        Self {
            scenario: scenario.to_owned(),
            profile: profile.name(),
            requests,
            success_ratio: answers.succeeded as f64 / passed,
            p50_ms: quantile(0.50),
            p95_ms: quantile(0.95),
            p99_ms: quantile(0.99),
            max_ms: milliseconds(answers.latency.max()),
            upstream_requests,
            extra_load: (upstream_requests as f64 - passed) / passed,
            rejected: answers.rejected,
            fleet: None,
        }
    }

    /// The row of one client of a fleet of gateways with this limit.
    pub(crate) fn of_fleet(self, answers: &Answers, burst: u64, per_second: u64) -> Self {
        let refilled = u128::from(per_second) * answers.took.as_micros() / 1_000_000;
        let limit = burst.saturating_add(u64::try_from(refilled).unwrap_or(u64::MAX));
        let apart = answers.admitted.iter().enumerate();
        let admitted = answers.admitted.iter().sum();
        let fleet = Fleet {
            gateways: answers.admitted.len(),
            apart: apart
                .map(|(gateway, admitted)| (format!("admitted_{}", gateway + 1), *admitted))
                .collect(),
            admitted,
            limit,
            admitted_over_limit: admitted as f64 / limit as f64,
        };
        Self {
            fleet: Some(fleet),
            ..self
        }
    }
}

fn milliseconds(microseconds: u64) -> f64 {
    microseconds as f64 / 1000.0
}

/// All rows, with the fleets in a separate table.
pub(crate) fn text(rows: &[Row]) -> String {
    let (fleets, others): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.fleet.is_some());
    let mut parts = Vec::new();
    if !others.is_empty() {
        parts.push(table(&others).to_string());
    }
    if !fleets.is_empty() {
        parts.push(format!("{FLEETS}\n\n{}", fleet_table(&fleets)));
    }
    parts.join("\n\n")
}

const FLEETS: &str = "\
One client sends to several gateways in turn. Where each counts for itself (memory), the client gets the limit of
each; where all count in one backend, it gets the limit once. The limit is burst + rate x the seconds that it took.";

fn fleet_table(rows: &[&Row]) -> Table {
    let mut table = Table::new();
    let fleets = || {
        rows.iter()
            .filter_map(|row| Some((row, row.fleet.as_ref()?)))
    };
    let most = fleets().map(|(_, fleet)| fleet.gateways).max().unwrap_or(0);
    let gateways = (1..=most).map(|gateway| format!("gateway {gateway}"));
    let mut header = vec!["scenario".to_owned(), "requests".to_owned()];
    header.extend(gateways);
    header.extend(["admitted", "limit", "admitted / limit"].map(str::to_owned));
    table.load_style(presets::ASCII_MARKDOWN).set_header(header);
    for (row, fleet) in fleets() {
        let mut cells = vec![row.scenario.clone(), row.requests.to_string()];
        cells.extend(fleet.apart.values().map(u64::to_string));
        cells.push(fleet.admitted.to_string());
        cells.push(fleet.limit.to_string());
        cells.push(format!("{:.2}", fleet.admitted_over_limit));
        table.add_row(cells);
    }
    numbers_to_the_right(&mut table, 1);
    table
}

/// Rows aligned under the names of their fields.
fn table(rows: &[&Row]) -> Table {
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
        "rejected",
    ]);
    table.add_rows(rows.iter().map(|row| {
        [
            row.scenario.clone(),
            row.profile.to_owned(),
            row.requests.to_string(),
            format!("{:.4}", row.success_ratio),
            format!("{:.1}", row.p50_ms),
            format!("{:.1}", row.p95_ms),
            format!("{:.1}", row.p99_ms),
            format!("{:.1}", row.max_ms),
            row.upstream_requests.to_string(),
            format!("{:.3}", row.extra_load),
            row.rejected.to_string(),
        ]
    }));
    numbers_to_the_right(&mut table, 2);
    table
}

fn numbers_to_the_right(table: &mut Table, from: usize) {
    for column in table.column_iter_mut().skip(from) {
        column.set_cell_alignment(CellAlignment::Right);
    }
}
