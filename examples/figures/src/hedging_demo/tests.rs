use std::collections::BTreeSet;

use super::*;
use crate::plot::{Drawn, assert_is_in_docs};

fn run(requests: u32, seed: u64) -> Vec<Row> {
    rows(requests, seed, &ProgressBar::hidden()).unwrap()
}

fn of(rows: &[Row], mode: Mode) -> &Row {
    rows.iter().find(|row| row.mode == mode).unwrap()
}

/// About 300 of 10,000 requests are slow, so the percentiles hold for any seed.
#[test]
fn the_99th_percentile_is_the_articles_without_its_network() {
    for seed in 1..=3 {
        let rows = run(10_000, seed);
        let p99 = |mode| of(&rows, mode).p99_ms;
        assert!((115.0..=117.0).contains(&p99(Mode::None)));
        assert!((36.0..=38.0).contains(&p99(Mode::Hedged)));
        assert!((15.0..=17.0).contains(&p99(Mode::FanOut)));
        assert!((30.0..=32.0).contains(&p99(Mode::Percentile)));
        let extra = |mode| of(&rows, mode).extra_load;
        assert!(extra(Mode::None).abs() < f64::EPSILON);
        assert!((0.025..=0.037).contains(&extra(Mode::Hedged)));
        assert!((extra(Mode::FanOut) - 2.0).abs() < f64::EPSILON);
        assert!((0.022..=0.037).contains(&extra(Mode::Percentile)));
    }
}

#[test]
fn a_request_that_is_not_slow_takes_15_ms_in_every_mode() {
    for row in run(2_000, 1) {
        assert!((row.p50_ms - 15.0).abs() < 0.02, "{row:?}");
        assert!(row.max_ms <= 115.02 && row.requests == 2_000);
    }
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let output = |seed| report(&run(2_000, seed)).unwrap().output();
    let first = output(7);
    assert_eq!(output(7), first);
    assert_ne!(output(8), first);
}

#[test]
fn rows_are_flat_objects_with_these_keys() {
    let report = report(&run(200, 1)).unwrap();
    let modes: Vec<_> = report.rows.iter().map(|row| row["mode"].clone()).collect();
    assert_eq!(modes, ["none", "hedged", "fan-out", "percentile"]);
    let expected = [
        "mode",
        "p50_ms",
        "p90_ms",
        "p95_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "extra_load",
        "requests",
    ];
    assert_eq!(report.keys(), vec![BTreeSet::from(expected); 4]);
    let text = report.table.to_string();
    for published in ["116.9", "40.8", "20.0"] {
        assert!(text.contains(published), "{text}");
    }
}

#[test]
fn every_tail_is_plotted_within_its_axes() {
    let plot = plots::tail(&run(2_000, 1));
    let panel = &plot.panels[0];
    assert_eq!(panel.series.len(), 5);
    for (x, y) in panel.series.iter().flat_map(|series| &series.points) {
        assert!(plot.x.holds(*x) && panel.y.holds(*y));
    }
}

#[test]
fn the_tail_is_drawn_in_steps_over_percentiles_with_the_published_points() {
    let drawn = Drawn::new(plots::tail(&run(2_000, 1)).svg().unwrap());
    drawn.assert_is_a_tail_with(3);
}

#[test]
fn the_plot_in_the_documentation_is_current() {
    assert_is_in_docs(&plots::tail(&run(REQUESTS, 1)));
}
