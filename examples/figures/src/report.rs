//! What a figure comes to.

use comfy_table::{CellAlignment, Table, presets};
use serde_json::Value;

use crate::plot::Plot;

/// The results of one figure, in all their forms.
#[derive(Debug)]
pub(crate) struct Report {
    /// One line over the table.
    pub(crate) title: &'static str,
    /// Flat objects.
    pub(crate) rows: Vec<Value>,
    pub(crate) table: Table,
    /// One for each published graph.
    pub(crate) plots: Vec<Plot>,
}

/// An aligned table: the first `names` columns to the left, the numbers after them to the right.
pub(crate) fn table<const N: usize>(
    header: [&str; N],
    names: usize,
    rows: impl IntoIterator<Item = [String; N]>,
) -> Table {
    let mut table = Table::new();
    table
        .load_style(presets::ASCII_MARKDOWN)
        .set_header(header)
        .add_rows(rows);
    for column in table.column_iter_mut().skip(names) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}
