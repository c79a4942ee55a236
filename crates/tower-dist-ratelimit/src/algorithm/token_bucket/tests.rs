use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::{
    algorithm::{saturating_nanos, tests::ask},
    quota::HORIZON,
};

const DAY: u64 = 86_400_000_000_000;

fn bucket(quota: Quota) -> TokenBucket {
    TokenBucket::new(quota).unwrap()
}

fn at(bucket: &TokenBucket, nanos: u64) -> Moment {
    Arithmetic::at(bucket, nanos, 0)
}

/// The new state, if anything was taken, and the decision.
fn charge(bucket: &TokenBucket, full_at: u64, now: Moment, cost: u64) -> (Option<u64>, Decision) {
    let ask = ask(cost);
    let (mut decision, mut next) = (Decision::default(), full_at);
    bucket.decide(&full_at, now, &ask, &mut decision);
    bucket.take(&mut next, now, &ask, decision.granted);
    ((decision.granted > 0).then_some(next), decision)
}

/// The new state, if it is another.
fn settle(bucket: &TokenBucket, mut full_at: u64, now: Moment, delta: i64) -> Option<u64> {
    bucket
        .settle(&mut full_at, now, &ask(0), delta)
        .then_some(full_at)
}

/// The algorithm by the book, in exact fractions: a level that grows with time, in tokens times the window.
struct Exact {
    quota: Quota,
    level: u128,
    seen: u64,
}

impl Exact {
    fn new(quota: Quota) -> Self {
        Self {
            quota,
            level: Self::full(quota),
            seen: 0,
        }
    }

    fn full(quota: Quota) -> u128 {
        u128::from(quota.burst_size()) * quota.window().as_nanos()
    }

    fn admits(&mut self, nanos: u64, cost: u64) -> bool {
        let gained = u128::from(nanos - self.seen) * u128::from(self.quota.limit());
        self.level = self
            .level
            .saturating_add(gained)
            .min(Self::full(self.quota));
        self.seen = nanos;
        let cost = u128::from(cost) * self.quota.window().as_nanos();
        let admits = cost <= self.level;
        if admits {
            self.level -= cost;
        }
        admits
    }
}

/// Every size from 1 to u64::MAX, not only the large ones.
fn any_size() -> impl Strategy<Value = u64> {
    (any::<u64>(), 0_u32..64).prop_map(|(bits, shift)| (bits >> shift).max(1))
}

fn everyday_quota() -> impl Strategy<Value = Quota> {
    let windows = prop::sample::select(vec![
        1,
        7,
        1_000_000,
        999_999_937,
        1_000_000_000,
        60_000_000_000,
        DAY,
    ]);
    (1_u64..2_000_000, windows, 1_u64..50).prop_filter_map("too fast", |(limit, window, burst)| {
        let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
        TokenBucket::new(quota).is_ok().then_some(quota)
    })
}

/// Whatever can be built, up to the limits.
fn any_quota() -> impl Strategy<Value = Quota> {
    (any_size(), any_size(), any_size()).prop_filter_map(
        "cannot be built",
        |(limit, window, burst)| {
            let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
            TokenBucket::new(quota).is_ok().then_some(quota)
        },
    )
}

/// Times between requests, about as long as some tokens take, and costs up to a bit above the burst.
fn requests(quota: Quota) -> impl Strategy<Value = Vec<(u64, u64)>> {
    let per_token = u64::try_from(quota.window().as_nanos()).unwrap() / quota.limit() + 1;
    prop::collection::vec((0..=3 * per_token, 0..=quota.burst_size() + 1), 1..60)
}

fn everyday_traffic() -> impl Strategy<Value = (Quota, Vec<(u64, u64)>)> {
    everyday_quota()
        .prop_flat_map(|quota| requests(quota).prop_map(move |requests| (quota, requests)))
}

/// Times between requests that come at twice the rate or faster, which keeps a bucket of two tokens or more from
/// ever being full again.
fn overload() -> impl Strategy<Value = (Quota, Vec<u64>)> {
    everyday_quota().prop_flat_map(|quota| {
        let quota = quota.burst(quota.burst_size() + 1);
        let half = u64::try_from(quota.window().as_nanos()).unwrap() / quota.limit() / 2;
        prop::collection::vec(0..=half, 1..200).prop_map(move |waits| (quota, waits))
    })
}

/// What one bucket admits over a day of requests that come faster than it allows, with jumps in time.
fn admitted_in_a_day(quota: Quota, jump: u64) -> (u64, u64) {
    let bucket = bucket(quota);
    let (mut full_at, mut admitted, mut nanos) = (0, 0, 0);
    while nanos <= DAY {
        while let (Some(next), _) = charge(&bucket, full_at, at(&bucket, nanos), 1) {
            full_at = next;
            admitted += 1;
        }
        nanos += jump;
    }
    (admitted, nanos - jump)
}

#[test]
fn no_request_is_lost_in_a_day_of_any_rate() {
    // 333 a second is where intervals in whole nanoseconds drift, by 9.6 requests a day.
    for (quota, jump) in [
        (Quota::per_second(3).burst(10), 1_234_567_891),
        (Quota::per_second(333).burst(400), 1_000_000_007),
        (Quota::per_day(1_000_000).burst(100), 7_000_000_001),
    ] {
        let (admitted, until) = admitted_in_a_day(quota, jump);
        let gained = u128::from(until) * u128::from(quota.limit()) / quota.window().as_nanos();
        let exact = u64::try_from(gained).unwrap() + quota.burst_size();
        assert_eq!(admitted, exact, "{quota:?}");
    }
}

#[test]
fn a_hundred_years_do_not_add_up_to_an_error() {
    let quota = Quota::per_second(333).burst(1);
    let bucket = bucket(quota);
    let year_100 = at(&bucket, saturating_nanos(HORIZON));
    let exact = u128::from(year_100.nanos) * 333 * u128::from(bucket.pace.units(1)) / 1_000_000_000;
    assert_eq!(u128::from(year_100.units), exact);
    // And then time stands still, which lets nobody through who should wait.
    assert_eq!(at(&bucket, u64::MAX).units, year_100.units);
}

#[test]
fn after_idle_time_there_is_a_burst_and_not_one_more() {
    let bucket = bucket(Quota::per_second(10).burst(5));
    let (mut full_at, mut admitted) = (0, 0);
    for nanos in [0, DAY + 1] {
        while let (Some(next), _) = charge(&bucket, full_at, at(&bucket, nanos), 1) {
            full_at = next;
            admitted += 1;
        }
    }
    assert_eq!(admitted, 5 + 5);
}

#[test]
fn round_numbers_give_round_waits() {
    let bucket = bucket(Quota::per_second(10).burst(10));
    let (full_at, decision) = charge(&bucket, 0, at(&bucket, 0), 10);
    assert_eq!(decision, Decision::allow(10, 10, 0, Duration::from_secs(1)));
    let (written, decision) = charge(&bucket, full_at.unwrap(), at(&bucket, 0), 3);
    assert_eq!(written, None);
    assert_eq!(
        decision,
        Decision::refuse(
            10,
            0,
            Some(Duration::from_millis(300)),
            Duration::from_secs(1)
        )
    );
}

#[test]
fn a_cost_above_the_burst_never_passes() {
    let bucket = bucket(Quota::per_second(10).burst(5));
    let decision = Decision::refuse(10, 5, None, Duration::ZERO);
    assert_eq!(charge(&bucket, 0, at(&bucket, 7), 6), (None, decision));
    assert_eq!(
        charge(&bucket, 0, at(&bucket, 7), u64::MAX),
        (None, decision)
    );
}

#[test]
fn zero_cost_passes_and_writes_nothing() {
    let bucket = bucket(Quota::per_second(10).burst(1));
    let (full_at, _) = charge(&bucket, 0, at(&bucket, 0), 1);
    let decision = Decision::allow(0, 10, 0, Duration::from_millis(100));
    assert_eq!(
        charge(&bucket, full_at.unwrap(), at(&bucket, 0), 0),
        (None, decision)
    );
}

#[test]
fn a_refund_fills_the_bucket_and_no_more() {
    let bucket = bucket(Quota::per_second(10).burst(5));
    let now = at(&bucket, 0);
    let full_at = charge(&bucket, 0, now, 3).0.unwrap();
    let after_one = settle(&bucket, full_at, now, -1).unwrap();
    assert_eq!(charge(&bucket, after_one, now, 0).1.remaining, 3);
    let after_all = settle(&bucket, full_at, now, i64::MIN).unwrap();
    assert_eq!(charge(&bucket, after_all, now, 0).1.remaining, 5);
    assert_eq!(settle(&bucket, after_all, now, -1), None);
}

#[test]
fn an_extra_charge_can_leave_a_debt() {
    let bucket = bucket(Quota::per_second(10).burst(5));
    let now = at(&bucket, 0);
    let full_at = settle(&bucket, 0, now, 7).unwrap();
    let (_, decision) = charge(&bucket, full_at, now, 1);
    assert_eq!(decision.retry_after, Some(Duration::from_millis(300)));
    assert!(settle(&bucket, full_at, now, i64::MAX).is_some());
}

#[test]
fn what_cannot_be_counted_is_not_built() {
    let field = |quota| {
        let error = TokenBucket::new(quota).unwrap_err();
        (
            error.field().to_owned(),
            error.value().to_owned(),
            error.bound().to_owned(),
        )
    };
    let expect = |field: &str, value: &str, bound: &str| {
        (field.to_owned(), value.to_owned(), bound.to_owned())
    };
    let max = u64::MAX.to_string();
    assert_eq!(
        field(Quota::per_second(0)),
        expect("limit", "0", "at least 1")
    );
    assert_eq!(
        field(Quota::per_second(1).burst(0)),
        expect("burst", "0", "at least 1")
    );
    assert_eq!(
        field(Quota::new(1, Duration::ZERO)),
        expect("window", "0ns", "at least 1ns")
    );
    assert_eq!(
        field(Quota::new(1, HORIZON + Duration::from_nanos(1))).0,
        "window"
    );
    assert_eq!(field(Quota::new(1, Duration::MAX)).2, "at most 100 years");
    assert_eq!(
        field(Quota::per_second(u64::MAX)),
        expect("limit", &max, "at most 2922710230 in a window of 1s")
    );
    assert_eq!(
        field(Quota::per_second(1).burst(u64::MAX)),
        expect("burst", &max, "at most 2305843009213693952")
    );
    assert!(TokenBucket::new(Quota::per_second(2_922_710_230)).is_ok());
    assert!(TokenBucket::new(Quota::per_second(1).burst(MAX_AHEAD)).is_ok());
    assert!(TokenBucket::new(Quota::new(1, HORIZON)).is_ok());
}

proptest! {
    #[test]
    fn any_window_admits_at_most_burst_plus_rate((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at, mut admitted) = (0, 0, Vec::new());
        for (wait, cost) in requests {
            nanos += wait;
            if let (Some(next), _) = charge(&bucket, full_at, at(&bucket, nanos), cost) {
                full_at = next;
                admitted.push((nanos, cost));
            }
        }
        for (first, &(start, _)) in admitted.iter().enumerate() {
            let mut sum = 0;
            for &(end, cost) in &admitted[first..] {
                sum += u128::from(cost);
                // Less than a nanosecond early: the fraction of a unit that `start` was rounded down by.
                let window = quota.window().as_nanos();
                let gained = u128::from(end - start + 1) * u128::from(quota.limit());
                prop_assert!(sum * window <= u128::from(quota.burst_size()) * window + gained);
            }
        }
    }

    /// A bucket that is full forgets what it was ahead or behind, so this is about those that are not.
    #[test]
    fn under_load_the_count_is_the_exact_one_give_or_take_one((quota, waits) in overload()) {
        let bucket = bucket(quota);
        let mut exact = Exact::new(quota);
        let (mut nanos, mut full_at, mut ours, mut theirs) = (0, 0, 0_i64, 0_i64);
        for wait in waits {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), 1);
            full_at = next.unwrap_or(full_at);
            ours += i64::from(decision.allowed);
            theirs += i64::from(exact.admits(nanos, 1));
            prop_assert!((ours - theirs).abs() <= 1, "{ours} of {theirs}");
        }
    }

    #[test]
    fn refused_just_before_retry_after_and_allowed_at_it((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            prop_assert_eq!(next.is_some(), decision.allowed && cost > 0, "a refusal writes nothing");
            prop_assert_eq!(decision.retry_after.is_none(), cost > quota.burst_size());
            if let (false, Some(wait)) = (decision.allowed, decision.retry_after) {
                let wait = u64::try_from(wait.as_nanos()).unwrap();
                prop_assert!(!charge(&bucket, full_at, at(&bucket, nanos + wait - 1), cost).1.allowed);
                prop_assert!(charge(&bucket, full_at, at(&bucket, nanos + wait), cost).1.allowed);
            }
            full_at = next.unwrap_or(full_at);
        }
    }

    #[test]
    fn the_bucket_is_full_at_reset_after_and_not_before((quota, requests) in everyday_traffic()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, decision) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            full_at = next.unwrap_or(full_at);
            let full = nanos + u64::try_from(decision.reset_after.as_nanos()).unwrap();
            prop_assert!(at(&bucket, full).units >= full_at);
            prop_assert!(full == nanos || at(&bucket, full - 1).units < full_at);
        }
    }

    #[test]
    fn nothing_overflows_whatever_can_be_built(
        quota in any_quota(),
        steps in prop::collection::vec((any_size(), any_size(), any::<i64>()), 1..20),
    ) {
        let bucket = bucket(quota);
        let mut full_at = 0;
        for (nanos, cost, delta) in steps {
            // Times in any order: also a clock that jumps back.
            let now = at(&bucket, nanos);
            let (next, decision) = charge(&bucket, full_at, now, cost.min(quota.burst_size()));
            prop_assert!(decision.remaining <= quota.burst_size());
            full_at = next.unwrap_or(full_at);
            full_at = settle(&bucket, full_at, now, delta).unwrap_or(full_at);
        }
    }

    #[test]
    fn a_clock_that_jumps_back_admits_nothing_more((quota, requests) in everyday_traffic(), back in any_size()) {
        let bucket = bucket(quota);
        let (mut nanos, mut full_at) = (0, 0);
        for (wait, cost) in requests {
            nanos += wait;
            let (next, now) = charge(&bucket, full_at, at(&bucket, nanos), cost);
            let (_, before) = charge(&bucket, full_at, at(&bucket, nanos.saturating_sub(back)), cost);
            prop_assert!(now.allowed || !before.allowed);
            prop_assert!(before.remaining <= now.remaining + cost);
            full_at = next.unwrap_or(full_at);
        }
    }
}
