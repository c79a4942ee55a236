//! Extreme numbers and times.

use super::{Key, nanos, traffic::ALL};
use crate::{
    Algorithm, Quota,
    algorithm::{FixedWindow, Take},
    arithmetic::Limit,
    backend::{Charge, PolicyId},
    quota::HORIZON,
};

const LIMIT: u64 = 10;

/// Limits with short waits.
fn keys() -> impl Iterator<Item = (Algorithm, Key)> {
    let quota = Quota::per_minute(LIMIT);
    ALL.into_iter()
        .map(move |algorithm| (algorithm, Key::new(algorithm, quota).unwrap()))
}

#[test]
fn limits_hold_after_the_horizon() {
    for (algorithm, mut key) in keys() {
        let before = nanos(HORIZON) - 1;
        key.charge(before - 1, LIMIT);
        let granted: u64 = [before, before + 1, before + 2, u64::MAX / 2, u64::MAX]
            .map(|now| (0..30).map(|_| key.charge(now, 1).granted).sum::<u64>())
            .into_iter()
            .sum();
        // The queue holds one request that costs a minute, and has no room for another one.
        assert!(granted <= LIMIT, "{algorithm:?}: {granted}");
        let rejected = key.charge(u64::MAX, 1);
        assert!(!rejected.allowed, "{algorithm:?}: {rejected:?}");
    }
}

#[test]
fn a_queue_of_decades_has_a_state_that_can_be_read() {
    let max_wait = HORIZON;
    let quota = Quota::new(1, HORIZON / 4);
    let limit = Limit::new(Algorithm::LeakyQueue { max_wait }, quota).unwrap();
    let charge = Charge::new(PolicyId::new(0), b"", 1);
    let quarter = nanos(HORIZON) / 4;
    for (years, places) in [(0, 5), (quarter, 4), (3 * quarter, 2), (4 * quarter, 1)] {
        let mut state = limit.unused(0);
        for n in 0..8 {
            let expected = places > n;
            assert_eq!(
                state.charge(years, &charge).allowed,
                expected,
                "{years} {n}"
            );
            let read = limit.read(0, &state.to_bytes()).expect("a state");
            assert_eq!(read.decide(years, &charge), state.decide(years, &charge));
        }
    }
}

#[test]
fn a_key_keeps_a_debt_of_any_size() {
    for (algorithm, mut key) in keys() {
        let unused = key.decide(0, &super::take(0)).remaining;
        for _ in 0..5 {
            key.settle(0, i64::MAX);
        }
        let owing = key.charge(0, 1);
        assert_eq!(
            (owing.allowed, owing.remaining),
            (false, 0),
            "{algorithm:?}"
        );
        let over = nanos(owing.reset_after);
        let drains = matches!(
            algorithm,
            Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. }
        );
        // Windows and logs count a token for at most two windows.
        assert!(drains || over <= 120_000_000_000, "{algorithm:?}: {over}");
        assert!(
            !drains || over > 86_400_000_000_000,
            "{algorithm:?}: {over}"
        );
        let later = key.decide(over, &super::take(0));
        assert_eq!(later.remaining, unused, "{algorithm:?}");
        // The debt can be refunded.
        for _ in 0..6 {
            key.settle(0, i64::MIN);
        }
        assert_eq!(
            key.decide(0, &super::take(0)).remaining,
            unused,
            "{algorithm:?}"
        );
    }
}

/// After the clock has jumped back by decades, the taken tokens exceed any debt.
#[test]
fn a_debt_is_never_less_than_the_tokens_taken_before() {
    for (algorithm, mut key) in keys() {
        key.charge(nanos(HORIZON), LIMIT);
        let before = key.pressure(0);
        key.settle(0, 1);
        assert!(key.pressure(0) >= before, "{algorithm:?}");
    }
}

/// A staggered key can be one window past the horizon, because its phase can be almost a window long.
#[test]
fn the_last_window_before_the_horizon_enforces_the_limit() {
    // These windows, the additional one, and the first number, which is 1, just fill their bits.
    let most = (1 << 20) - 2;
    let window = HORIZON / most;
    assert_eq!(HORIZON.as_nanos() / window.as_nanos(), u128::from(most));
    let windows = FixedWindow::new(Quota::new(LIMIT, window), true).unwrap();
    let mut key = Key::staggered(windows, u64::MAX);
    assert!(key.charge(u64::MAX, LIMIT).allowed);
    assert!(!key.charge(u64::MAX, 1).allowed);
}

#[test]
fn a_limit_of_zero_gives_an_unused_key_no_tokens() {
    for algorithm in ALL {
        let key = Key::dynamic(algorithm, Quota::per_minute(LIMIT)).unwrap();
        let zero = Quota::per_minute(0);
        for cost in [0, 1] {
            let take = Take {
                cost,
                up_to: cost,
                quota: Some(&zero),
            };
            let decision = key.decide(0, &take);
            assert_eq!(
                (decision.allowed, decision.remaining, decision.limit),
                (cost == 0, 0, 0),
                "{algorithm:?}"
            );
        }
    }
}
