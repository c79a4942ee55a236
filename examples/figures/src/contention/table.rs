//! Measured and published values.

use comfy_table::Table;

use super::cell::Cell;
use super::published::Published;
use crate::report;

pub(crate) fn table(cells: &[Cell]) -> Table {
    let header = [
        "strategy",
        "clients",
        "calls",
        "published",
        "off by",
        "completion ms",
        "published",
        "off by",
        "trials",
    ];
    report::table(header, 1, cells.iter().map(line))
}

fn line(cell: &Cell) -> [String; 9] {
    let published = Published::of(cell.clients, cell.strategy);
    let [known_calls, calls_off] = beside(cell.calls, published.map(|p| p.calls));
    let [known_completion, completion_off] =
        beside(cell.completion_ms, published.map(|p| p.completion_ms));
    [
        cell.strategy.name().into(),
        cell.clients.to_string(),
        format!("{:.0}", cell.calls),
        known_calls,
        calls_off,
        format!("{:.0}", cell.completion_ms),
        known_completion,
        completion_off,
        cell.trials.to_string(),
    ]
}

/// Returns the published value and the deviation from it, or empty texts without a published value.
fn beside(ours: f64, published: Option<f64>) -> [String; 2] {
    let Some(published) = published else {
        return Default::default();
    };
    let off = (ours / published - 1.0) * 100.0;
    [format!("{published:.0}"), format!("{off:+.1} %")]
}
