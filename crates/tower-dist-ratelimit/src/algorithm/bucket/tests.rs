mod properties;

use std::time::Duration;

use super::*;
use crate::{algorithm::saturating_nanos, arithmetic::tests::take, quota::HORIZON};

const DAY: u64 = 86_400_000_000_000;

fn bucket(quota: Quota) -> Bucket<false> {
    Bucket::new(quota, None).unwrap()
}

pub(super) fn at<const MAY_QUEUE: bool>(bucket: &Bucket<MAY_QUEUE>, nanos: u64) -> Moment {
    bucket.at(Now { nanos, key: 0 })
}

/// The new state, if anything was taken, and the decision.
fn charge(bucket: &Bucket<false>, full_at: u64, now: Moment, cost: u64) -> (Option<u64>, Decision) {
    let decision = bucket.decide(full_at, now, &take(cost));
    let next = bucket.take(full_at, now, decision.granted);
    ((decision.granted > 0).then_some(next), decision)
}

/// The new state, if it is another.
fn settle(bucket: &Bucket<false>, full_at: u64, now: Moment, delta: i64) -> Option<u64> {
    let settled = bucket.settle(full_at, now, delta);
    (settled != full_at).then_some(settled)
}

/// The tokens that one bucket grants over a day of too many requests, with jumps in time.
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
    // Then time stands still, which admits no request early.
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
        Decision::reject(
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
    let decision = Decision::reject(10, 5, None, Duration::ZERO);
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
fn a_quota_that_cannot_be_counted_is_an_error() {
    let field = |quota| {
        let error = Bucket::<false>::new(quota, None).unwrap_err();
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
    assert!(Bucket::<false>::new(Quota::per_second(2_922_710_230), None).is_ok());
    assert!(Bucket::<false>::new(Quota::per_second(1).burst(MAX_AHEAD), None).is_ok());
    assert!(Bucket::<false>::new(Quota::new(1, HORIZON), None).is_ok());
}
