//! Our results and the results of an independent simulation.

use comfy_table::Table;

use super::LOADS;
use super::mode::Mode;
use super::row::Row;
use crate::report;

pub(crate) fn table(rows: &[Row]) -> Table {
    let header = [
        "load",
        "mode",
        "recovery s",
        "independent",
        "goodput /s at 60 s",
        "independent",
        "offered /s at 60 s",
        "independent",
    ];
    report::table(header, 2, rows.iter().map(line))
}

fn line(row: &Row) -> [String; 8] {
    let seconds = |recovery: Option<usize>| {
        recovery.map_or_else(|| "never".into(), |seconds| seconds.to_string())
    };
    let storm = row.mode == Mode::NoBudget;
    let if_storm = |text: &str| if storm { text.into() } else { String::new() };
    [
        format!("{:.1}", row.load),
        row.mode.name().into(),
        seconds(row.recovery_s),
        independent_recovery(row).map(seconds).unwrap_or_default(),
        format!("{:.0}", row.goodput_60_s),
        if_storm("0"),
        format!("{:.0}", row.offered_60_s),
        if_storm("2200 to 2700"),
    ]
}

/// The recovery time in the independent simulation, if it has this row; the inner `None` means never.
fn independent_recovery(row: &Row) -> Option<Option<usize>> {
    let seconds = match row.mode {
        Mode::None => [8, 11, 20].map(Some),
        Mode::NoBudget => [None; 3],
        Mode::Budget => [8, 11, 22].map(Some),
        Mode::Hedge | Mode::TowerBudget => return None,
    };
    let same = |load: &f64| (load - row.load).abs() < 1e-9;
    let load = LOADS.iter().position(same)?;
    seconds.get(load).copied()
}
