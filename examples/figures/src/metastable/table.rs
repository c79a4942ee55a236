//! Our results and the results of an independent simulation.

use comfy_table::Table;

use super::mode::Mode;
use super::published;
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
        published::recovery(row.mode, row.load)
            .map(seconds)
            .unwrap_or_default(),
        format!("{:.0}", row.goodput_60_s),
        if_storm("0"),
        format!("{:.0}", row.offered_60_s),
        if_storm(&format!(
            "{} to {}",
            published::STORM[0],
            published::STORM[1]
        )),
    ]
}
