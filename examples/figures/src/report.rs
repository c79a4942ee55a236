//! Results of a figure.

#[cfg(test)]
use std::collections::BTreeSet;

use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use serde_json::Value;
use tower::BoxError;

use crate::plot::Plot;

/// The results of one figure, in all their forms.
#[derive(Debug)]
pub(crate) struct Report {
    /// The line above the table.
    pub(crate) title: &'static str,
    /// Rows of the JSON output, flat objects.
    pub(crate) rows: Vec<Value>,
    pub(crate) table: Table,
    /// Graphs, in the order of the README.
    pub(crate) plots: Vec<Plot>,
}

impl Report {
    pub(crate) fn new(
        title: &'static str,
        rows: &[impl Serialize],
        table: Table,
        plots: Vec<Plot>,
    ) -> Result<Self, BoxError> {
        let rows = rows.iter().map(serde_json::to_value);
        Ok(Self {
            title,
            rows: rows.collect::<Result<_, _>>()?,
            table,
            plots,
        })
    }
}

#[cfg(test)]
impl Report {
    /// Every output of a run: JSON, table and plots.
    pub(crate) fn output(&self) -> String {
        let plots = self.plots.iter().map(|plot| plot.svg().unwrap());
        let rows = serde_json::to_string(&self.rows).unwrap();
        let parts = [rows, self.table.to_string()].into_iter().chain(plots);
        parts.collect::<Vec<_>>().join("\n")
    }

    /// The keys of each row.
    pub(crate) fn keys(&self) -> Vec<BTreeSet<&str>> {
        let rows = self.rows.iter().map(|row| row.as_object().unwrap());
        rows.map(|row| row.keys().map(String::as_str).collect())
            .collect()
    }
}

/// Builds a table. The first `names` columns are aligned to the left, the numbers after them to the right.
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
