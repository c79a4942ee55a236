use std::collections::BTreeSet;

use super::published::Published;
use super::*;
use crate::plot::assert_is_part_of_docs;

const SEED: u64 = 1;

fn each_strategy(clients: u32, trials: u32) -> impl Iterator<Item = Setting> {
    Strategy::ALL.into_iter().map(move |strategy| Setting {
        clients,
        strategy,
        trials,
    })
}

fn run(settings: &[Setting], seed: u64) -> Vec<Cell> {
    cells(settings, seed, &ProgressBar::hidden()).unwrap()
}

/// The completion of one trial has a standard deviation of at most 23 % with 50 clients and 15 % with 100 (decorrelated
/// jitter). So 10 % are at least four standard errors of these means.
#[test]
fn calls_and_completion_are_the_published_ones() {
    let settings: Vec<Setting> = each_strategy(50, 100)
        .chain(each_strategy(100, 40))
        .collect();
    for cell in run(&settings, SEED) {
        let published = Published::of(cell.clients, cell.strategy).unwrap();
        let completion_tolerance = match cell.strategy {
            Strategy::Exponential => 0.25,
            _ => 0.10,
        };
        let off = |ours: f64, published: f64| (ours / published - 1.0).abs();
        assert!(
            off(cell.calls, published.calls) <= 0.05
                && off(cell.completion_ms, published.completion_ms) <= completion_tolerance,
            "{} calls and {} ms of {} with {} clients instead of {published:?}",
            cell.calls,
            cell.completion_ms,
            cell.strategy.name(),
            cell.clients,
        );
    }
}

#[test]
fn a_client_alone_needs_one_call() {
    for setting in each_strategy(1, 1) {
        let trial = setting.trial(0, SEED).unwrap();
        assert_eq!(trial.writes.len(), 1);
        // Four legs of 10 ms ± 2 ms. The result is one of them.
        assert!((20.0..60.0).contains(&trial.completion));
        let result = trial.completion - trial.writes[0];
        assert!((0.0..20.0).contains(&result), "{result}");
    }
}

#[test]
fn one_client_succeeds_in_every_round_without_backoff() {
    let setting = Setting {
        clients: 20,
        strategy: Strategy::None,
        trials: 1,
    };
    let trial = setting.trial(0, SEED).unwrap();
    assert!(trial.writes.is_sorted());
    // All clients take part in the first round, and at least one less in each later round.
    let calls = trial.writes.len();
    assert!((20..=210).contains(&calls), "{calls}");
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let settings: Vec<Setting> = each_strategy(10, 4).chain(each_strategy(100, 1)).collect();
    let output = |seed| {
        let report = report(&run(&settings, seed)).unwrap();
        let plots = report.plots.iter().map(|plot| plot.svg().unwrap());
        (
            serde_json::to_string(&report.rows).unwrap(),
            report.table.to_string(),
            plots.collect::<Vec<_>>(),
        )
    };
    let first = output(7);
    assert_eq!(output(7), first);
    let other = output(8);
    assert!(other.0 != first.0 && other.1 != first.1 && other.2 != first.2);
}

#[test]
fn rows_are_flat_objects_with_these_keys() {
    let settings: Vec<Setting> = each_strategy(2, 3).collect();
    let report = report(&run(&settings, SEED)).unwrap();
    for (row, strategy) in report.rows.iter().zip(Strategy::ALL) {
        let row = row.as_object().unwrap();
        let keys: BTreeSet<&str> = row.keys().map(String::as_str).collect();
        let expected = ["calls", "clients", "completion_ms", "strategy", "trials"];
        assert_eq!(keys, BTreeSet::from(expected));
        assert_eq!(row["clients"], 2);
        assert_eq!(row["strategy"], strategy.name());
        assert_eq!(row["trials"], 3);
        assert!(row["calls"].is_f64() && row["completion_ms"].is_f64());
    }
}

#[test]
fn the_table_has_the_published_value_beside_ours() {
    let settings: Vec<Setting> = each_strategy(1, 1).chain(each_strategy(50, 1)).collect();
    let text = report(&run(&settings, SEED)).unwrap().table.to_string();
    let fields = |line: &str| -> Vec<String> {
        line.split('|')
            .map(|field| field.trim().to_owned())
            .collect()
    };
    let rows: Vec<Vec<String>> = text.lines().skip(2).map(fields).collect();
    assert_eq!(rows.len(), 10);
    // No value was published for one client.
    assert_eq!(rows[0][4..6], ["", ""]);
    assert_eq!(rows[5][1..3], ["none", "50"]);
    assert_eq!(rows[5][4], "691");
    assert!(rows[5][5].ends_with(" %"));
    assert_eq!(rows[9][7], "2199");
}

#[test]
fn everything_is_plotted_within_its_axes() {
    let settings: Vec<Setting> = each_strategy(100, 1).collect();
    let plots = report(&run(&settings, SEED)).unwrap().plots;
    let shapes: Vec<_> = plots
        .iter()
        .map(|plot| (plot.name, plot.panels.len()))
        .collect();
    assert_eq!(
        shapes,
        [
            ("contention-calls", 1),
            ("contention-completion", 1),
            ("contention-over-time", 5)
        ]
    );
    for plot in &plots[..2] {
        for panel in &plot.panels {
            let points = panel.series.iter().flat_map(|series| &series.points);
            assert!(points.clone().count() > 0);
            for (x, y) in points {
                assert!(plot.x.holds(*x) && panel.y.holds(*y), "({x}, {y})");
            }
        }
    }
}

#[test]
fn the_sweep_is_the_articles() {
    let settings = settings();
    assert_eq!(settings.len(), 19 * 5);
    for setting in settings {
        assert_eq!(setting.clients % 10, 0);
        assert!((10..=190).contains(&setting.clients));
        assert_eq!(
            setting.trials,
            if setting.clients <= 100 { 100 } else { 30 }
        );
    }
}

/// With the numbers of clients that take the least time.
#[test]
fn the_plot_in_the_documentation_is_current() {
    let mut settings = settings();
    settings.retain(|setting| setting.clients <= 20);
    assert_is_part_of_docs(&plots::plots(&run(&settings, SEED))[0]);
}
