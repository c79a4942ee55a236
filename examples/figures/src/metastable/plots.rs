//! Goodput and offered load over time.

use super::PLOTTED_LOAD;
use super::row::Row;
use crate::plot::{Axis, Corner, Mark, Panel, Plot, Series};

pub(crate) fn plots(rows: &[Row]) -> Vec<Plot> {
    let plotted = |row: &&Row| (row.load - PLOTTED_LOAD).abs() < 1e-9;
    let rows: Vec<&Row> = rows.iter().filter(plotted).collect();
    let panel = |label, end, counts: fn(&Row) -> &[f64]| Panel {
        y: Axis::linear(label, end),
        series: rows.iter().map(|row| series(row, counts(row))).collect(),
    };
    vec![Plot {
        name: "metastable-over-time",
        title: "A server at 80 % load stops from 20 s to 30 s",
        x: Axis::linear("seconds", 120.0),
        legend: Corner::Right,
        height: 360,
        panels: vec![
            panel("successful calls per second", 1500.0, |row| {
                &row.traffic.goodput
            }),
            panel("attempts per second", 4500.0, |row| &row.traffic.offered),
        ],
    }]
}

fn series(row: &Row, counts: &[f64]) -> Series {
    let middles = (0_u32..).map(|second| f64::from(second) + 0.5);
    Series {
        name: row.mode.name(),
        mark: Mark::Curve(row.mode as usize),
        points: middles.zip(counts.iter().copied()).collect(),
    }
}
