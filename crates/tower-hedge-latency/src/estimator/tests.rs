use super::*;

const SECOND: u64 = 1_000_000;

/// The 95th percentile over windows of ten seconds.
const P95: Lesson = Lesson {
    above: 50_000_000,
    window: 10 * SECOND,
    samples: 200,
};

/// Every millisecond from `start` on a sample, which `latency` says for its number.
fn record(estimator: &Estimator, start: u64, count: u64, latency: impl Fn(u64) -> u64) -> u64 {
    for n in 0..count {
        estimator.record(latency(n), || start + n * 1000, &P95);
    }
    start + count * 1000
}

fn threshold(estimator: &Estimator) -> u64 {
    estimator.threshold().expect("samples enough")
}

#[test]
fn nothing_is_known_before_there_are_samples_enough() {
    let estimator = Estimator::new();
    record(&estimator, 0, 199, |_| 1000);
    assert_eq!(estimator.threshold(), None);
    // Refreshed after 100 ms, so the 300th sample has shown it.
    record(&estimator, 199_000, 101, |_| 1000);
    assert!(estimator.threshold().is_some());
}

#[test]
fn the_threshold_is_the_quantile_of_both_windows() {
    let estimator = Estimator::new();
    // 1 ms to 100 ms, evenly.
    record(&estimator, 0, 25_000, |n| 1000 * (1 + n % 100));
    let value = threshold(&estimator);
    assert!((94_000..=98_000).contains(&value), "{value}");
}

#[test]
fn what_is_older_than_two_windows_is_forgotten() {
    let estimator = Estimator::new();
    let now = record(&estimator, 0, 10_000, |_| 900_000);
    let now = record(&estimator, now, 10_000, |_| 1000);
    assert!(threshold(&estimator) > 900_000, "half of it still counts");
    record(&estimator, now, 10_100, |_| 1000);
    assert!(threshold(&estimator) < 1100);
}

#[test]
fn a_quiet_service_keeps_its_threshold_and_a_slow_one_its_samples() {
    let estimator = Estimator::new();
    let now = record(&estimator, 0, 10_000, |_| 50_000);
    let before = threshold(&estimator);
    // A day later one slow answer does not make the rule.
    estimator.record(5_000_000, || now + 24 * 3600 * SECOND, &P95);
    assert_eq!(threshold(&estimator), before);
    // A sample every ten seconds: a window is not closed before it has 200 of them.
    let estimator = Estimator::new();
    for n in 0..250 {
        estimator.record(
            if n < 15 { 80_000 } else { 20_000 },
            || n * 10 * SECOND,
            &P95,
        );
    }
    assert!(threshold(&estimator) > 80_000, "the first 200 still count");
}

#[test]
fn many_samples_at_one_instant_refresh_too() {
    let estimator = Estimator::new();
    for _ in 0..REFRESH_SAMPLES {
        estimator.record(1000, || 7, &P95);
    }
    assert!(estimator.threshold().is_some());
}

/// A clock that goes backwards between threads.
#[test]
fn a_time_before_the_last_refresh_is_no_time_at_all() {
    let estimator = Estimator::new();
    let now = record(&estimator, SECOND, 1000, |_| 1000);
    let before = threshold(&estimator);
    for n in 0..100 {
        estimator.record(u64::MAX, || now - SECOND - n, &P95);
    }
    assert_eq!(threshold(&estimator), before);
    assert!(before < 1100);
}

#[test]
fn extremes_do_no_harm() {
    let estimator = Estimator::new();
    let extreme = Lesson {
        above: u64::MAX,
        window: 0,
        samples: 0,
    };
    for now in [u64::MAX, 0, u64::MAX] {
        estimator.record(u64::MAX, || now, &extreme);
        estimator.record(0, || now, &extreme);
    }
    assert!(estimator.threshold().is_some());
}

#[test]
fn no_sample_is_lost_among_threads_that_close_windows() {
    let estimator = Estimator::new();
    let eager = Lesson { window: 100, ..P95 };
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..10_000).for_each(|n| estimator.record(n, || n, &eager)));
        }
    });
    assert!(estimator.forgotten.load(Relaxed) > 0);
    assert_eq!(estimator.recorded(), 40_000);
}
