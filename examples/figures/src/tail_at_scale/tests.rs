use std::collections::BTreeSet;

use super::*;
use crate::plot::Drawn;

fn run(settings: &[Setting], seed: u64) -> Vec<Row> {
    rows(settings, seed, &ProgressBar::hidden()).unwrap()
}

fn setting(mode: Mode, queries: u32) -> Setting {
    Setting {
        mode,
        pieces: 2,
        queries_per_piece: queries / 2,
    }
}

/// The 99th percentile of 500 queries is the sixth slowest. The 99.9th percentile needs a run of the figure.
#[test]
fn a_second_read_after_10_ms_takes_the_tail_away_for_2_per_cent_more() {
    let settings = [setting(Mode::None, 500), setting(Mode::Fixed, 500)];
    let rows = run(&settings, 1);
    let [none, fixed] = &rows[..] else {
        panic!("two settings");
    };
    assert!(none.p99_ms > 450.0, "{}", none.p99_ms);
    assert!(fixed.p99_ms < 60.0, "{}", fixed.p99_ms);
    assert!(none.extra_load.abs() < f64::EPSILON);
    let extra = fixed.extra_load;
    assert!((0.018..=0.022).contains(&extra), "{extra}");
}

#[test]
fn a_learned_delay_hedges_2_per_cent_of_the_reads() {
    let rows = run(&[setting(Mode::Percentile, 60)], 1);
    let row = &rows[0];
    assert!(
        (0.018..=0.022).contains(&row.extra_load),
        "{}",
        row.extra_load
    );
    assert!(row.p50_ms < 45.0, "{}", row.p50_ms);
    assert_eq!(row.queries, 60);
}

#[test]
fn the_same_seed_gives_the_same_output() {
    let settings = [setting(Mode::None, 20), setting(Mode::Fixed, 20)];
    let output = |seed| report(&run(&settings, seed)).unwrap().output();
    let first = output(7);
    assert_eq!(output(7), first);
    assert_ne!(output(8), first);
}

#[test]
fn rows_are_flat_objects_with_these_keys() {
    let report = report(&run(&[setting(Mode::Fixed, 10)], 1)).unwrap();
    let expected = [
        "mode",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "extra_load",
        "queries",
    ];
    assert_eq!(report.keys(), [BTreeSet::from(expected)]);
    let row = &report.rows[0];
    assert_eq!(
        (&row["mode"], &row["queries"]),
        (&"fixed".into(), &10.into())
    );
    assert!(report.table.to_string().contains("74.0"));
}

#[test]
fn the_sweep_is_large_enough_for_its_percentiles() {
    for setting in SETTINGS {
        let queries = setting.pieces * setting.queries_per_piece;
        assert_eq!(
            queries,
            if setting.mode == Mode::Percentile {
                5_000
            } else {
                40_000
            }
        );
    }
}

#[test]
fn the_tail_is_drawn_in_steps_over_percentiles_with_the_published_points() {
    let drawn = Drawn::new(
        plots::tail(&run(
            &[setting(Mode::None, 100), setting(Mode::Fixed, 100)],
            1,
        ))
        .svg()
        .unwrap(),
    );
    drawn.assert_is_a_tail_with(2);
}

/// Takes half a minute with optimisation. `scripts/figures --check` runs it.
#[test]
#[ignore = "45,000 queries of 1,000 keys"]
fn the_tail_and_the_extra_reads_are_the_published_ones() {
    for row in run(&SETTINGS, 1) {
        let extra = row.extra_load;
        if row.mode == Mode::None {
            assert!(
                row.p999_ms >= 1300.0 && extra.abs() < f64::EPSILON,
                "{row:?}"
            );
            continue;
        }
        assert!((0.018..=0.022).contains(&extra), "{row:?}");
        if row.mode == Mode::Fixed {
            assert!(row.p999_ms <= 85.0, "{row:?}");
        } else {
            assert!(row.p99_ms <= 45.0, "{row:?}");
        }
    }
}
