//! Dynamic quotas.

use std::time::Duration;

use proptest::prelude::*;

use super::{
    Key, Model, Take,
    traffic::{ALL, everyday},
};
use crate::{Algorithm, Quota};

pub(super) fn by(quota: &Quota, cost: u64) -> Take<'_> {
    Take {
        cost,
        up_to: cost,
        quota: Some(quota),
    }
}

const SECOND: u64 = 1_000_000_000;

#[test]
fn a_limit_below_the_used_tokens_rejects_and_does_not_underflow() {
    for algorithm in ALL {
        let mut key = Key::dynamic(algorithm, Quota::per_minute(100)).unwrap();
        key.settle(0, 80);
        let low = Quota::per_minute(10);
        let rejected = key.charge_by(0, &by(&low, 1));
        let queue = rejected.delay > Duration::ZERO;
        if queue {
            // A queue has no count. Its requests keep their places at another pace.
            assert_eq!(rejected.delay, Duration::from_secs(480), "{algorithm:?}");
            continue;
        }
        assert_eq!(
            (rejected.allowed, rejected.remaining, rejected.limit),
            (false, 0, 10),
            "{algorithm:?}"
        );
        let wait = u64::try_from(rejected.retry_after.unwrap().as_nanos()).unwrap();
        assert!(wait > 0);
        assert!(!key.decide(wait - 1, &by(&low, 1)).allowed, "{algorithm:?}");
        assert!(key.decide(wait, &by(&low, 1)).allowed, "{algorithm:?}");
    }
}

#[test]
fn a_raised_limit_admits_immediately_and_keeps_the_used_tokens() {
    for algorithm in ALL {
        let mut key = Key::dynamic(algorithm, Quota::per_minute(10)).unwrap();
        if key.charge(0, 10).remaining > 0 {
            continue; // a queue, which has room for as long as it is short enough
        }
        assert!(
            !key.decide(SECOND, &super::take(1)).allowed,
            "{algorithm:?}"
        );
        let high = Quota::per_minute(1_000);
        let allowed = key.charge_by(SECOND, &by(&high, 1));
        assert!(allowed.allowed, "{algorithm:?}");
        // In that second a bucket has drained less than a token, at the rate that was in force.
        assert_eq!(
            (allowed.limit, allowed.remaining),
            (1_000, 989),
            "{algorithm:?}"
        );
    }
}

#[test]
fn a_queue_of_another_rate_is_spaced_by_it() {
    let mut key = Key::dynamic(ALL[2], Quota::per_second(1)).unwrap();
    let fast = Quota::per_second(10);
    assert_eq!(key.charge_by(0, &by(&fast, 1)).delay, Duration::ZERO);
    assert_eq!(
        key.charge_by(0, &by(&fast, 1)).delay,
        Duration::from_millis(100)
    );
    assert_eq!(key.charge(0, 1).delay, Duration::from_secs(2));
}

#[test]
fn the_quota_in_force_determines_how_long_a_key_is_limited() {
    for algorithm in [ALL[0], ALL[2]] {
        let mut key = Key::dynamic(algorithm, Quota::per_second(100)).unwrap();
        let slow = Quota::per_hour(10);
        assert!(key.charge_by(0, &by(&slow, 1)).allowed);
        assert!(key.pressure(360 * SECOND - 1) > 0, "{algorithm:?}");
        assert_eq!(key.pressure(360 * SECOND), 0, "{algorithm:?}");
        // The remaining used tokens then drain at the other rate.
        assert!(key.charge(180 * SECOND, 1).allowed, "{algorithm:?}");
        assert!(key.pressure(180 * SECOND + SECOND * 15 / 1000 - 1) > 0);
        assert_eq!(key.pressure(180 * SECOND + SECOND * 15 / 1000 + 1), 0);
    }
}

#[test]
fn idle_time_before_a_change_counts_by_the_quota_that_was_in_force() {
    const HOUR: u64 = 3600 * SECOND;
    let (fast, slow) = (Quota::per_hour(10), Quota::per_day(1).burst(10));
    for (quota, other, left) in [(fast, slow, 10), (slow, fast, 0)] {
        let mut key = Key::dynamic(ALL[0], Quota::per_minute(1)).unwrap();
        assert!(key.charge_by(0, &by(&quota, 10)).allowed);
        assert_eq!(key.decide(10 * HOUR, &by(&other, 0)).remaining, left);
        assert_eq!(key.decide(10 * HOUR, &by(&quota, 0)).remaining, left);
    }
}

/// A client that waits for `retry_after` passes, and not earlier: a rejected request puts its quota in force.
#[test]
fn after_a_change_a_wait_is_exact_by_the_new_quota() {
    let (fast, slow) = (Quota::per_hour(10), Quota::per_day(10));
    for algorithm in [ALL[0], ALL[1]] {
        for (quota, other) in [(fast, slow), (slow, fast)] {
            let mut key = Key::dynamic(algorithm, Quota::per_minute(1)).unwrap();
            assert!(key.charge_by(0, &by(&quota, 10)).allowed);
            let wait = key.charge_by(0, &by(&other, 1)).retry_after.unwrap();
            assert_eq!(wait, other.window() / 10, "{other:?}");
            let wait = super::nanos(wait);
            assert!(!key.charge_by(wait - 1, &by(&other, 1)).allowed);
            assert!(key.charge_by(wait, &by(&other, 1)).allowed);
        }
    }
}

/// A rejected request with the same rate leaves the stored bytes alone, and so the time of the last write.
#[test]
fn a_rejected_request_writes_the_key_only_if_its_quota_has_another_rate() {
    let quota = Quota::per_minute(6);
    for algorithm in [ALL[0], ALL[1], ALL[2]] {
        let mut key = Key::dynamic(algorithm, quota).unwrap();
        key.charge(SECOND, 1);
        let before = key.bytes();
        for same in [quota, quota.burst(1_000), Quota::per_hour(360).burst(2)] {
            key.adopt(2 * SECOND, &by(&same, 1_001));
            assert_eq!(key.bytes(), before, "{algorithm:?}, {same:?}");
        }
        for other in [Quota::per_minute(7).burst(6), Quota::per_hour(361).burst(6)] {
            let mut key = key.clone();
            key.adopt(2 * SECOND, &by(&other, 7));
            assert_ne!(key.bytes(), before, "{algorithm:?}, {other:?}");
        }
    }
}

#[test]
fn peeks_refunds_and_quotas_of_zero_do_not_change_the_quota_in_force() {
    let (quota, other) = (Quota::per_hour(10), Quota::per_day(10));
    let mut key = Key::dynamic(ALL[0], quota).unwrap();
    key.charge(0, 10);
    key.charge_by(0, &by(&other, 0));
    key.settle_by(0, &by(&other, 0), -2);
    for zero in [Quota::per_day(0), other.burst(0)] {
        assert!(!key.charge_by(0, &by(&zero, 1)).allowed);
    }
    assert_eq!(key.decide(3600 * SECOND, &super::take(0)).remaining, 10);
    // A settlement above the estimate changes it.
    key.charge(3600 * SECOND, 8);
    key.settle_by(3600 * SECOND, &by(&other, 0), 2);
    assert_eq!(key.decide(2 * 3600 * SECOND, &super::take(0)).remaining, 0);
}

#[test]
fn a_limit_of_zero_always_rejects_and_keeps_the_used_tokens() {
    for algorithm in ALL {
        let mut key = Key::dynamic(algorithm, Quota::per_minute(10)).unwrap();
        key.charge(0, 4);
        for zero in [Quota::per_minute(0), Quota::per_minute(0).burst(5)] {
            let rejected = key.charge_by(0, &by(&zero, 1));
            assert_eq!(
                (rejected.allowed, rejected.retry_after, rejected.remaining),
                (false, None, 0),
                "{algorithm:?}"
            );
            assert_eq!(key.decide(0, &by(&zero, 0)).remaining, 0);
        }
        let used = key.decide(0, &super::take(0));
        assert!(used.reset_after > Duration::ZERO, "{algorithm:?}");
    }
}

#[test]
fn a_correction_under_a_limit_of_zero_counts_every_token() {
    let (quota, zero) = (Quota::per_minute(10), Quota::per_minute(0));
    for algorithm in ALL {
        let [mut under_zero, mut plain] = [(); 2].map(|()| Key::dynamic(algorithm, quota).unwrap());
        for delta in [7, -2] {
            under_zero.settle_by(0, &by(&zero, 0), delta);
            plain.settle(0, delta);
            let [ours, expected] = [&under_zero, &plain].map(|key| key.decide(0, &super::take(0)));
            assert_eq!(ours, expected, "{algorithm:?}");
            let blocked = under_zero.decide(0, &by(&zero, 0));
            assert_eq!((blocked.limit, blocked.remaining), (0, 0), "{algorithm:?}");
        }
    }
}

pub(super) fn drains(algorithm: Algorithm) -> bool {
    matches!(
        algorithm,
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. }
    )
}

proptest! {
    /// Quotas come from a user's database.
    #[test]
    fn no_quota_overflows(
        algorithm in prop::sample::select(&ALL[..]),
        quotas in prop::collection::vec((any::<[u64; 3]>(), any::<[u32; 3]>(), any::<u64>(), any::<i64>()), 1..12),
    ) {
        let mut key = Key::dynamic(algorithm, Quota::per_minute(10)).unwrap();
        let mut now = 0_u64;
        for (numbers, shifts, wait, delta) in quotas {
            let [limit, window, burst] = [0, 1, 2].map(|i| numbers[i] >> (shifts[i] % 65).min(63));
            let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
            now = now.saturating_add(wait >> (shifts[0] % 64));
            let take = Take { cost: numbers[2] >> (shifts[1] % 64), up_to: numbers[0], quota: Some(&quota) };
            let decision = key.charge_by(now, &take);
            prop_assert!(decision.allowed || decision.granted == 0);
            prop_assert!(!decision.allowed || decision.granted >= take.cost);
            key.settle(now, delta);
            key.pressure(now);
        }
    }

    /// The used tokens persist under any quota, with a rounding of up to one token per change.
    #[test]
    fn changes_of_quota_neither_lose_nor_invent_tokens(
        changes in prop::collection::vec((1_u64..1_000, 1_u64..1_000, 0_u64..20), 1..20),
    ) {
        let mut key = Key::dynamic(ALL[0], Quota::per_day(1)).unwrap();
        let mut used = 0;
        let mut number = 0;
        for (limit, more, cost) in changes {
            let quota = Quota::new(limit, Duration::from_secs(86_400 * more)).burst(500);
            let decision = key.charge_by(0, &by(&quota, cost));
            used += decision.granted;
            number += 1;
            let left = key.decide(0, &by(&quota, 0)).remaining;
            prop_assert!(left <= 500 - used && left + number >= 500 - used, "{left} after {used}");
        }
    }

    #[test]
    fn dynamic_quotas_that_stay_the_same_count_as_fixed_quotas((algorithm, quota, steps) in everyday()) {
        let mut fixed = Key::new(algorithm, quota).unwrap();
        let mut dynamic = Key::dynamic(algorithm, quota).unwrap();
        let mut at = 0;
        for (step, number) in steps.into_iter().zip(0..) {
            at += step.wait;
            let take = Take { cost: step.cost, up_to: step.want, quota: None };
            let told = Take { quota: Some(&quota), ..take };
            let decision = fixed.charge_by(at, &take);
            prop_assert_eq!(dynamic.charge_by(at, if number % 2 == 0 { &take } else { &told }), decision);
            if let Some(delta) = step.settle {
                prop_assert_eq!(dynamic.settle(at, delta), fixed.settle(at, delta));
            }
            // Each counts in units of its own, but they reach zero at the same time.
            prop_assert_eq!(dynamic.pressure(at) == 0, fixed.pressure(at) == 0);
        }
    }

    /// Windows and logs follow a model whose limit changes; tokens taken under earlier limits still count.
    #[test]
    fn a_window_has_the_limit_of_the_charge_and_keeps_its_count(
        // Shorter windows have too few bits for these counts.
        (algorithm, quota, steps) in everyday().prop_filter("a window or a log", |(algorithm, quota, _)| {
            !drains(*algorithm) && quota.window() >= Duration::from_millis(1)
        }),
        limits in prop::collection::vec(0_u64..300, 6),
    ) {
        let mut key = Key::dynamic(algorithm, quota).unwrap();
        let mut model = Model::new(algorithm, quota);
        let mut now = 0;
        for (step, limit) in steps.into_iter().zip(limits.iter().cycle()) {
            now += step.wait;
            // No policy has the window of this quota.
            let quota = Quota::new(*limit, Duration::from_secs(7));
            model = model.limited_to(*limit);
            let take = Take { cost: step.cost, up_to: step.want, quota: Some(&quota) };
            let decision = key.decide(now, &take);
            let expected = model.decide(now, step.cost, step.want);
            prop_assert_eq!(
                (decision.allowed, decision.granted, decision.remaining, decision.limit),
                (expected.allowed, expected.granted, expected.remaining, *limit)
            );
            if !decision.allowed {
                let then = decision.retry_after.map(|wait| now + super::nanos(wait));
                prop_assert_eq!(then, model.allowed_at(now, step.cost), "{:?}", decision);
            }
            key.take(now, &take, decision.granted);
            model.take(now, decision.granted);
        }
    }

    /// Compares tokens, with a rounding of up to one token per change.
    #[test]
    fn a_bucket_drains_at_the_rate_in_force_until_it_changes(
        changes in prop::collection::vec((1_u64..1_000, 0_u64..3_000, 0_u64..20), 1..20),
    ) {
        let mut key = Key::dynamic(ALL[0], Quota::per_minute(1)).unwrap();
        // Used tokens times the milliseconds of a minute; milliseconds since the last change; the limit since then.
        let (mut used, mut since, mut in_force) = (0_u64, 0, 1);
        let (mut now, mut number) = (0, 0);
        for (limit, millis, cost) in changes {
            let quota = Quota::per_minute(limit).burst(500);
            now += millis * 1_000_000;
            since += millis;
            let decision = key.charge_by(now, &by(&quota, cost));
            let left = used.saturating_sub(in_force * since);
            let free = 500_u64.saturating_sub(left.div_ceil(60_000));
            let told = decision.remaining + decision.granted;
            prop_assert!(told.abs_diff(free) <= number, "{decision:?}, but {free}");
            if cost > 0 {
                (used, since, in_force) = (left + decision.granted * 60_000, 0, limit);
                number += 1;
            }
        }
    }
}
