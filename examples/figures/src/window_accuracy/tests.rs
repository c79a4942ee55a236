use std::collections::BTreeSet;

use super::published::Published;
use super::*;
use crate::plot::assert_is_in_docs;

const SEED: u64 = 1;
const TWENTY_MINUTES: Duration = Duration::from_secs(1200);

fn run(seed: u64) -> Vec<Row> {
    rows(TWENTY_MINUTES, seed, &ProgressBar::hidden()).unwrap()
}

fn of<'a>(rows: &'a [Row], algorithm: Algorithm, traffic: &str) -> Vec<&'a Row> {
    rows.iter()
        .filter(|row| row.algorithm == algorithm && row.traffic == traffic)
        .collect()
}

#[test]
fn worst_windows_are_the_published_ones() {
    let rows = run(SEED);
    let mut compared = 0;
    for row in &rows {
        if let Some(published) = Published::of(row.algorithm, row.traffic) {
            assert!(published.holds(row.worst_window_over_limit), "{row:?}");
            compared += 1;
        }
    }
    assert_eq!(compared, 1 + 4 + 3 * 5);
}

#[test]
fn more_windows_count_better_at_every_load() {
    let rows = run(SEED);
    let errors = |algorithm| {
        let rows = of(&rows, algorithm, "poisson");
        rows.into_iter().map(|row| row.mean_abs_error)
    };
    let fixed = errors(Algorithm::FixedWindow);
    let two = errors(Algorithm::TwoWindow);
    let sub = errors(Algorithm::SubWindowsInterpolated);
    let log = errors(Algorithm::SlidingLog);
    let mut loads = 0;
    for (((fixed, two), sub), log) in fixed.zip(two).zip(sub).zip(log) {
        assert!(sub < two && two < fixed, "{sub}, {two}, {fixed}");
        assert!(log < 1e-9, "{log}");
        loads += 1;
    }
    assert_eq!(loads, 3);
}

#[test]
fn the_log_is_never_wrong_and_hard_caps_never_exceed_the_limit() {
    for row in &run(SEED) {
        match row.algorithm {
            Algorithm::SlidingLog => {
                assert!(row.wrongly_refused + row.wrongly_admitted < 1e-9, "{row:?}");
            }
            Algorithm::SubWindowsWhole | Algorithm::LeakyBucket => {
                assert!(row.wrongly_admitted < 1e-9, "{row:?}");
                assert!(row.worst_window_over_limit <= 1.0, "{row:?}");
            }
            _ => {}
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let output = |seed| {
        let traces = Trace::run(Algorithm::TwoWindow, Duration::from_secs(60), seed).unwrap();
        let rows = Traffic::ALL.map(|traffic| {
            Row::run(Algorithm::TwoWindow, traffic, TWENTY_MINUTES / 4, seed).unwrap()
        });
        let report = report(&rows, &[traces]).unwrap();
        (
            serde_json::to_string(&report.rows).unwrap(),
            report.table.to_string(),
            report.plots[0].svg().unwrap(),
        )
    };
    let first = output(7);
    assert_eq!(output(7), first);
    let other = output(8);
    assert!(other.0 != first.0 && other.1 != first.1 && other.2 != first.2);
}

#[test]
fn rows_are_flat_objects_with_these_keys() {
    let row = Row::run(
        Algorithm::FixedWindow,
        Traffic::Bursty,
        TWENTY_MINUTES,
        SEED,
    )
    .unwrap();
    let report = report(&[row], &[]).unwrap();
    let row = report.rows[0].as_object().unwrap();
    let keys: BTreeSet<&str> = row.keys().map(String::as_str).collect();
    let expected = [
        "algorithm",
        "traffic",
        "load",
        "worst_window_over_limit",
        "admitted_ratio",
        "mean_count_error",
        "mean_abs_error",
        "wrongly_refused",
        "wrongly_admitted",
    ];
    assert_eq!(keys, BTreeSet::from(expected));
    assert_eq!(row["algorithm"], "fixed-window");
    assert_eq!(row["traffic"], "bursty");
    for number in &expected[2..] {
        assert!(row[*number].is_f64(), "{number}");
    }
}

#[test]
fn each_algorithm_runs_with_each_traffic_under_its_name() {
    let rows = rows(Duration::from_secs(60), SEED, &ProgressBar::hidden()).unwrap();
    assert_eq!(rows.len(), 5 * 7);
    for row in &rows {
        let name = serde_json::to_value(row.algorithm).unwrap();
        assert_eq!(name, row.algorithm.name());
    }
}

#[test]
fn the_article_s_three_graphs_are_plotted_within_their_axes() {
    let traces =
        Algorithm::IN_THE_ARTICLE.map(|algorithm| Trace::run(algorithm, TRACE, SEED).unwrap());
    let plots = plots::plots(&traces);
    assert_eq!(plots.len(), 3);
    for plot in plots {
        assert_eq!(plot.panels.len(), 2);
        for panel in &plot.panels {
            assert!(panel.series[..2].iter().all(|s| s.points.len() > 100));
            for (x, y) in panel.series.iter().flat_map(|series| &series.points) {
                assert!(plot.x.holds(*x) && panel.y.holds(*y), "({x}, {y})");
            }
        }
    }
}

#[test]
fn a_ring_marks_the_known_bound_at_the_highest_count_of_the_adversary() {
    for (algorithm, bound) in [
        (Algorithm::FixedWindow, Some(200.0)),
        (Algorithm::TwoWindow, Some(199.0)),
        (Algorithm::SubWindowsInterpolated, None),
    ] {
        let trace = Trace::run(algorithm, TRACE, SEED).unwrap();
        let plot = &plots::plots(std::slice::from_ref(&trace))[0];
        assert!(plot.panels[0].series.len() == 2);
        let counts = trace.adversarial.passed.iter().map(|(_, count)| *count);
        let highest = counts.fold(0.0, f64::max);
        let rings = plot.panels[1].series.get(2);
        let ring = rings.map(|series| series.points[0].1.round());
        assert_eq!(ring, bound);
        assert!(
            bound.is_none_or(|bound| (highest - bound).abs() < 0.5),
            "{algorithm:?} {highest}"
        );
    }
}

#[test]
fn the_plot_in_the_documentation_is_current() {
    let trace = Trace::run(Algorithm::TwoWindow, TRACE, SEED).unwrap();
    assert_is_in_docs(&plots::plots(&[trace])[0]);
}
