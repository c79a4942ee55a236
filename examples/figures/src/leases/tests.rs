use super::*;
use crate::plot::{Drawn, assert_is_in_docs, assert_is_part_of_docs};

/// Runs the small fleet for a second.
fn small(seed: u64) -> Vec<Row> {
    let mut settings = settings();
    settings.retain(|(fleet, ..)| *fleet == SMALL);
    for (fleet, ..) in &mut settings {
        fleet.seconds = 1;
    }
    rows(&settings, seed, &ProgressBar::hidden()).unwrap()
}

#[test]
fn leases_keep_their_bound_and_save_round_trips_for_any_seed() {
    for seed in [1, 2] {
        let row = |mode, load| Row::run(SMALL, mode, load, seed).unwrap();
        let (above, below) = (row(Mode::Lease(1000), 3.0), row(Mode::Lease(1000), 0.8));
        for row in [&above, &below] {
            assert!(
                Some(row.admitted_over_limit) <= row.bound_over_limit,
                "{row:?}"
            );
            assert!(row.round_trips_per_decision <= 0.1, "{row:?}");
        }
        assert!(above.admitted_over_limit >= 0.95, "{above:?}");
        assert!(below.admitted_ratio > 0.98, "{below:?}");
        // Eventual consistency has no bound, and exceeds the bound of leases.
        let asynchronous = row(Mode::Async(1000), 3.0);
        let (other, ours) = (
            asynchronous.worst_second_over_limit,
            above.worst_second_over_limit,
        );
        assert!(other > 1.5 * ours, "{asynchronous:?} {above:?}");
    }
}

#[test]
fn leases_save_round_trips_and_waiting_in_three_regions() {
    let fleet = Fleet {
        seconds: 10,
        ..MEDIUM
    };
    let row = |mode, load| Row::run(fleet, mode, load, 1).unwrap();
    for load in LOADS {
        let (exact, leased) = (row(Mode::Exact, load), row(Mode::Lease(1000), load));
        assert!((exact.round_trips_per_decision - 1.0).abs() < 1e-9);
        assert!(leased.round_trips_per_decision <= 0.1, "{leased:?}");
        assert!(
            Some(leased.admitted_over_limit) <= leased.bound_over_limit,
            "{leased:?}"
        );
        // A third of the instances is in each region. Timers are at most 1 ms late.
        assert!((40.0..=41.0).contains(&exact.p50_ms), "{exact:?}");
        assert!((80.0..=81.0).contains(&exact.p99_ms), "{exact:?}");
        assert!(leased.p50_ms < 0.1, "{leased:?}");
    }
}

#[test]
fn the_bucket_grows_with_the_fleet() {
    let sizes = [SMALL, MEDIUM, LARGE].map(|fleet| (fleet.rate(), fleet.burst()));
    assert_eq!(sizes, [(1_000, 100), (5_000, 500), (50_000, 5_000)]);
}

#[test]
fn every_fleet_runs_exactly_and_with_leases_at_both_loads() {
    let settings = settings();
    assert_eq!(settings.len(), 2 * ((1 + 6 + 2) + 2 * (1 + 3)));
    for fleet in [SMALL, MEDIUM, LARGE] {
        for load in LOADS {
            for mode in [Mode::Exact, Mode::Lease(1000)] {
                assert!(
                    settings.contains(&(fleet, mode, load)),
                    "{fleet:?} {mode:?}"
                );
            }
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let rows = |seed| serde_json::to_string(&small(seed)).unwrap();
    assert_eq!(rows(5), rows(5));
    assert_ne!(rows(5), rows(6));
}

#[test]
fn all_lease_times_are_plotted_at_each_load() {
    let plots = report(&small(1)).unwrap().plots;
    assert_eq!(plots[0].panels.len(), LOADS.len());
    for panel in &plots[0].panels {
        let points = panel.series.iter().map(|series| series.points.len());
        assert_eq!(points.collect::<Vec<_>>(), [LEASES_MS.len(), 0, 0]);
    }
}

#[test]
fn the_ticks_of_the_plot_are_round_numbers_that_fit() {
    let report = report(&small(1)).unwrap();
    let drawn = Drawn::new(report.plots[0].svg().unwrap());
    drawn.assert_ticks_are_short_and_whole();
    for tick in ["0", "0.2", "0.6", "1", "200", "1000"] {
        assert!(drawn.has_text(tick), "{tick}");
    }
}

/// With the points that take the least time.
#[test]
fn the_plot_in_the_documentation_is_current() {
    let settings = LOADS.map(|load| (SMALL, Mode::Lease(1000), load));
    let rows = rows(&settings, 1, &ProgressBar::hidden()).unwrap();
    assert_is_part_of_docs(&plots::plots(&rows)[0]);
}

/// Takes a minute with optimisation. `scripts/figures --check` runs it.
#[test]
#[ignore = "every fleet at its full size"]
fn every_fleet_keeps_its_bound_uses_its_quota_and_needs_the_round_trips_of_the_documentation() {
    let rows = rows(&settings(), 1, &ProgressBar::hidden()).unwrap();
    assert_is_in_docs(&plots::plots(&rows)[0]);
    for row in rows.iter().filter(|row| row.mode != "async") {
        assert!(
            Some(row.admitted_over_limit) <= row.bound_over_limit,
            "{row:?}"
        );
        if row.load > 1.0 {
            assert!(row.admitted_over_limit >= 0.97, "{row:?}");
        } else {
            assert!(row.admitted_ratio >= 0.99, "{row:?}");
        }
        if row.mode == "exact" {
            let per_decision = row.round_trips_per_decision;
            assert!((per_decision - 1.0).abs() < 1e-9, "{row:?}");
        }
        if row.lease_ms == Some(1000) {
            assert!(row.round_trips_per_decision <= 0.1, "{row:?}");
            assert!(row.p50_ms < 0.1, "{row:?}");
        }
    }
    // The latencies in three regions. Timers are at most 1 ms late.
    for row in rows.iter().filter(|row| row.instances > SMALL.instances) {
        if row.mode == "exact" {
            assert!((40.0..=41.0).contains(&row.p50_ms), "{row:?}");
            assert!((80.0..=81.0).contains(&row.p99_ms), "{row:?}");
        } else if row.lease_ms == Some(1000) {
            let p99 = if row.load > 1.0 {
                80.0..=81.0
            } else {
                0.0..=41.0
            };
            assert!(p99.contains(&row.p99_ms), "{row:?}");
        }
    }
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let page = std::fs::read_to_string(format!("{folder}/capacity.md")).unwrap();
    for (ms, name) in [(200, "200 ms"), (500, "500 ms"), (1000, "1 s")] {
        let [below, above] = LOADS.map(|load| range_of_round_trips(&rows, ms, load));
        let line = format!("| {name} | {below} | {above} |");
        assert!(page.contains(&line), "docs/capacity.md lacks {line}");
    }
}

/// Returns the round trips per decision of the three fleets, as in the documentation.
fn range_of_round_trips(rows: &[Row], lease_ms: u64, load: f64) -> String {
    let rows = rows.iter().filter(|row| {
        row.mode == "lease" && row.lease_ms == Some(lease_ms) && (row.load - load).abs() < 1e-9
    });
    let mut trips: Vec<_> = rows.map(|row| row.round_trips_per_decision).collect();
    assert_eq!(trips.len(), 3);
    trips.sort_unstable_by(f64::total_cmp);
    let [least, most] = [trips[0], trips[2]].map(|trips| format!("{trips:.2}"));
    if least == most {
        least
    } else {
        format!("{least} to {most}")
    }
}
