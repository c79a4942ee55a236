//! The most that each algorithm admits in one window, under any traffic and under its worst traffic.

use std::time::Duration;

use proptest::prelude::*;

use super::{Key, traffic::everyday};
use crate::{Algorithm, Quota};

const L: u64 = 100;
const MINUTE: u64 = 60_000_000_000;
const DAY: u64 = 1_440 * MINUTE;

/// The times and costs of admitted requests.
#[derive(Default)]
struct Admitted(Vec<(u64, u64)>);

impl Admitted {
    fn charge(&mut self, key: &mut Key, now: u64, cost: u64) -> bool {
        let decision = key.charge(now, cost);
        if decision.granted > 0 {
            let delay = u64::try_from(decision.delay.as_nanos()).unwrap();
            self.0.push((now + delay, decision.granted));
        }
        decision.allowed
    }

    /// Sends each request at the first time at which it can pass.
    fn greedy(&mut self, key: &mut Key, cost: u64, mut now: u64, until: u64) {
        while now < until {
            if !self.charge(key, now, cost) {
                let decision = key.decide(now, &super::take(cost));
                let wait = super::nanos(decision.retry_after.unwrap());
                assert!(wait > 0, "{decision:?}");
                now += wait;
            }
        }
    }

    /// Returns the most tokens admitted in any `(t - window, t]`.
    fn worst(&self, window: u64) -> u64 {
        let sum = |end: u64| {
            let inside = |at: u64| at <= end && at + window > end;
            self.0
                .iter()
                .filter(|(at, _)| inside(*at))
                .map(|(_, cost)| cost)
                .sum()
        };
        self.0.iter().map(|(end, _)| sum(*end)).max().unwrap_or(0)
    }
}

/// The maximum tokens in one window, according to the table of algorithms.
fn bound(algorithm: Algorithm, quota: Quota) -> u64 {
    let limit = quota.limit();
    match algorithm {
        Algorithm::SlidingWindowStrict { .. } | Algorithm::SlidingWindowLog => limit,
        // One request at the start of the window, then requests of any cost at the rate.
        Algorithm::LeakyQueue { .. } => limit + quota.burst_size(),
        Algorithm::TokenBucket | Algorithm::LeakyBucket => limit + quota.burst_size(),
        _ => 2 * limit,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn no_window_admits_more_than_the_algorithm_promises((algorithm, quota, steps) in everyday()) {
        let mut key = Key::new(algorithm, quota).unwrap();
        let mut admitted = Admitted::default();
        let mut now = 0;
        for step in steps {
            now += step.wait;
            admitted.charge(&mut key, now, step.cost);
            // Takes all remaining tokens, as an attacker would.
            if step.settle.is_some() {
                while admitted.charge(&mut key, now, 1) && admitted.0.len() < 500 {}
            }
        }
        let window = u64::try_from(quota.window().as_nanos()).unwrap();
        // A bucket can round in a token that is less than a nanosecond early.
        let window = window - super::rounding(algorithm);
        let worst = admitted.worst(window);
        prop_assert!(worst <= bound(algorithm, quota), "{worst} of {quota:?}");
    }
}

/// Returns the worst window: all possible requests just before `at`, then each as soon as it passes.
fn attacked(algorithm: Algorithm, at: u64) -> u64 {
    let mut key = Key::new(algorithm, Quota::per_minute(L)).unwrap();
    let mut admitted = Admitted::default();
    while admitted.charge(&mut key, at - 1, 1) && admitted.0.len() < 1_000 {}
    admitted.greedy(&mut key, 1, at, at + 5 * MINUTE);
    admitted.worst(MINUTE)
}

#[test]
fn a_fixed_window_admits_twice_the_limit_around_its_end() {
    let aligned = Algorithm::FixedWindow { staggered: false };
    assert_eq!(attacked(aligned, MINUTE), 2 * L);
}

#[test]
fn a_window_from_the_first_request_admits_almost_twice_the_limit_around_its_end() {
    let mut key = Key::new(Algorithm::FixedWindowFromFirstRequest, Quota::per_minute(L)).unwrap();
    let mut admitted = Admitted::default();
    assert!(admitted.charge(&mut key, 0, 1));
    assert!(admitted.charge(&mut key, MINUTE - 1, L - 1));
    assert!(admitted.charge(&mut key, MINUTE, L));
    assert_eq!(admitted.worst(MINUTE), 2 * L - 1);
}

#[test]
fn a_sliding_window_of_100_admits_at_most_199() {
    assert_eq!(attacked(Algorithm::SlidingWindow, MINUTE), 199);
}

#[test]
fn interpolated_sub_windows_do_not_lower_the_worst_case() {
    let worst = attacked(Algorithm::SlidingWindowBuckets { count: 4 }, MINUTE / 4);
    assert!((198..200).contains(&worst), "{worst}");
}

#[test]
fn strict_sub_windows_and_the_log_never_admit_more_than_the_limit() {
    for at in [1, 7, MINUTE / 4, MINUTE / 4 + 1, MINUTE / 3, MINUTE] {
        assert_eq!(attacked(Algorithm::SlidingWindowStrict { count: 4 }, at), L);
        assert_eq!(attacked(Algorithm::SlidingWindowLog, at), L);
    }
}

#[test]
fn a_bucket_admits_its_burst_and_the_tokens_of_the_window() {
    for algorithm in [Algorithm::TokenBucket, Algorithm::LeakyBucket] {
        // The last request of the second hundred arrives when the window ends.
        assert_eq!(attacked(algorithm, MINUTE), 2 * L - 1);
    }
}

/// Runs for a day, at rates where an interval in whole nanoseconds would drift.
#[test]
fn a_queue_spaces_requests_exactly_by_the_rate() {
    for (quota, cost) in [
        (Quota::per_second(3), 2),
        (Quota::per_second(333), 331),
        (Quota::per_day(1_000_000), 23),
    ] {
        let max_wait = Duration::from_secs(1);
        let mut key = Key::new(Algorithm::LeakyQueue { max_wait }, quota).unwrap();
        let mut admitted = Admitted::default();
        admitted.greedy(&mut key, cost, 0, DAY);
        let apart = quota.window().as_nanos() * u128::from(cost);
        assert!(u128::from(DAY) / apart.div_ceil(quota.limit().into()) < admitted.0.len() as u128);
        for (number, (at, _)) in admitted.0.iter().enumerate() {
            let exact = (number as u128 * apart).div_ceil(quota.limit().into());
            assert_eq!(u128::from(*at), exact, "{number} of {quota:?}");
        }
    }
}

/// Runs for a day, with one request per window at a cost of the limit.
#[test]
fn windows_do_not_drift_in_a_day() {
    for algorithm in [
        Algorithm::FixedWindow { staggered: false },
        Algorithm::FixedWindowFromFirstRequest,
        Algorithm::SlidingWindowLog,
    ] {
        for quota in [
            Quota::per_second(3),
            Quota::per_second(333),
            Quota::new(1_000, Duration::from_millis(86_400)),
            Quota::new(7, Duration::from_nanos(999_999_937)),
        ] {
            let mut key = Key::new(algorithm, quota).unwrap();
            let mut admitted = Admitted::default();
            admitted.greedy(&mut key, quota.limit(), 0, DAY);
            let window = super::nanos(quota.window());
            assert_eq!(admitted.0.len() as u64, DAY.div_ceil(window));
            for (number, (at, cost)) in (0..).zip(&admitted.0) {
                assert_eq!(
                    (*at, *cost),
                    (number * window, quota.limit()),
                    "{algorithm:?}"
                );
            }
        }
    }
}

#[test]
fn only_strict_sub_windows_sustain_less_than_the_limit() {
    let sustained = |algorithm| {
        let mut key = Key::new(algorithm, Quota::per_minute(L)).unwrap();
        let mut admitted = Admitted::default();
        admitted.greedy(&mut key, 1, 0, 100 * MINUTE);
        admitted.0.len() as f64 / (100 * L) as f64
    };
    for (algorithm, share) in [
        (Algorithm::FixedWindow { staggered: false }, 1.0),
        (Algorithm::FixedWindowFromFirstRequest, 1.0),
        (Algorithm::SlidingWindow, 1.0),
        (Algorithm::SlidingWindowBuckets { count: 4 }, 1.0),
        (Algorithm::SlidingWindowStrict { count: 4 }, 0.80),
        (Algorithm::SlidingWindowStrict { count: 10 }, 0.91),
        (Algorithm::SlidingWindowLog, 1.0),
        (Algorithm::TokenBucket, 1.0),
    ] {
        let ours = sustained(algorithm);
        assert!((ours - share).abs() < 0.015, "{algorithm:?}: {ours}");
    }
}
