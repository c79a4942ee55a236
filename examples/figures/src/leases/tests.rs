use super::*;
use crate::plot::Drawn;

#[test]
fn leases_keep_their_bound_and_save_round_trips_for_any_seed() {
    for seed in [1, 2] {
        let row = |mode, load| Row::run(mode, load, MINUTE, seed).unwrap();
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
        // What is for comparison has no bound, and passes that of leases.
        let asynchronous = row(Mode::Async(1000), 3.0);
        let (other, ours) = (
            asynchronous.worst_second_over_limit,
            above.worst_second_over_limit,
        );
        assert!(other > 1.5 * ours, "{asynchronous:?} {above:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_rows() {
    let time = Duration::from_secs(1);
    let rows = |seed| {
        let rows = rows(time, seed, &ProgressBar::hidden()).unwrap();
        serde_json::to_string(&rows).unwrap()
    };
    assert_eq!(rows(5), rows(5));
    assert_ne!(rows(5), rows(6));
}

#[test]
fn there_is_a_plot_of_all_lease_times() {
    let rows = rows(Duration::from_secs(1), 1, &ProgressBar::hidden()).unwrap();
    let plots = report(&rows).unwrap().plots;
    let series = &plots[0].panels[0].series;
    assert!(
        series
            .iter()
            .all(|series| series.points.len() == LEASES_MS.len())
    );
}

#[test]
fn the_ticks_of_the_plot_are_round_numbers_that_fit() {
    let report = report(&rows(Duration::from_secs(1), 1, &ProgressBar::hidden()).unwrap()).unwrap();
    let drawn = Drawn::new(report.plots[0].svg().unwrap());
    drawn.assert_ticks_are_short_and_whole();
    for tick in ["0", "0.3", "0.6", "1", "200", "1000"] {
        assert!(drawn.has_text(tick), "{tick}");
    }
}
