//! What each setter of a policy makes, by the clock.

use std::time::Duration;

use tokio::time::advance;
use tower_dist_ratelimit::{
    Algorithm, BuildError, Decision, Decisions, Limiter, Policy, Quota, Source,
    backend::{Answer, Backend, Charge, Memory, PolicyId},
};

fn per_minute(limit: u64) -> Policy {
    Policy::new("p", Quota::per_minute(limit))
}

fn limiter(policy: Policy) -> Limiter {
    Limiter::new(Memory::default(), policy).unwrap()
}

async fn seconds(seconds: u64) {
    advance(Duration::from_secs(seconds)).await;
}

async fn admitted(limiter: &Limiter, requests: u64) -> u64 {
    let mut admitted = 0;
    for _ in 0..requests {
        admitted += u64::from(limiter.check("a").await.unwrap().allowed);
    }
    admitted
}

#[tokio::test(start_paused = true)]
async fn a_leaky_bucket_meters_like_a_token_bucket() {
    let quota = Quota::per_minute(60).burst(5);
    let [bucket, meter] = [
        limiter(Policy::new("p", quota)),
        limiter(Policy::new("p", quota).leaky_bucket()),
    ];
    for _ in 0..50 {
        let [one, other] = [bucket.check("a").await, meter.check("a").await];
        assert_eq!(one.unwrap(), other.unwrap());
        advance(Duration::from_millis(777)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_queue_says_how_long_each_has_to_wait() {
    let limiter = limiter(per_minute(60).leaky_queue(Duration::from_secs(2)));
    for delay in 0..=2 {
        let decision = limiter.check("a").await.unwrap();
        assert!(decision.allowed);
        assert_eq!(decision.delay, Duration::from_secs(delay));
    }
    let refused = limiter.check("a").await.unwrap();
    assert_eq!(
        (refused.allowed, refused.retry_after),
        (false, Some(Duration::from_secs(1)))
    );
    assert_eq!(
        limiter.peek("b").await.unwrap().remaining,
        3,
        "another key, another queue"
    );
}

#[tokio::test(start_paused = true)]
async fn fixed_windows_begin_when_the_limiter_was_made() {
    let limiter = limiter(per_minute(10).fixed_window());
    seconds(59).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
    let refused = limiter.check("a").await.unwrap();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(1)));
    seconds(1).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_window_from_the_first_hit_begins_with_it() {
    let limiter = limiter(per_minute(10).first_hit());
    seconds(59).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
    let refused = limiter.check("a").await.unwrap();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(60)));
    seconds(60).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
}

#[tokio::test(start_paused = true)]
async fn with_a_phase_per_key_windows_end_at_different_times_and_each_is_a_window_long() {
    let limiter = limiter(per_minute(1).phase_per_key());
    let mut ends = std::collections::BTreeSet::new();
    for key in 0..100 {
        let first = limiter.check(key).await.unwrap();
        assert!(first.allowed && first.reset_after <= Duration::from_secs(60));
        ends.insert(first.reset_after);
    }
    assert_eq!(ends.len(), 100);
    seconds(60).await;
    for key in 0..100 {
        let second = limiter.check(key).await.unwrap();
        assert!(second.allowed && ends.contains(&second.reset_after));
        let third = limiter.check(key).await.unwrap();
        assert_eq!(third.retry_after, Some(second.reset_after));
    }
}

/// The article's example: 43 seconds into a minute, 17/60 of the minute before count.
#[tokio::test(start_paused = true)]
async fn of_two_windows_the_previous_counts_by_what_is_left_of_it() {
    let limiter = limiter(per_minute(100).two_windows());
    assert_eq!(admitted(&limiter, 60).await, 60);
    seconds(60 + 43).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 100 - 17);
}

#[tokio::test(start_paused = true)]
async fn of_sub_windows_only_the_oldest_counts_in_part() {
    let limiter = limiter(per_minute(100).sub_windows(4));
    assert_eq!(admitted(&limiter, 60).await, 60);
    seconds(59).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 40);
    seconds(1 + 10).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 100 - 20);
}

#[tokio::test(start_paused = true)]
async fn whole_sub_windows_count_until_all_of_the_oldest_is_a_window_ago() {
    let limiter = limiter(per_minute(100).whole_sub_windows(4));
    assert_eq!(admitted(&limiter, 101).await, 100);
    let refused = limiter.check("a").await.unwrap();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(75)));
    seconds(74).await;
    assert_eq!(admitted(&limiter, 1).await, 0);
    seconds(1).await;
    assert_eq!(admitted(&limiter, 101).await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_log_counts_each_request_for_exactly_a_window() {
    let limiter = limiter(per_minute(3).sliding_log());
    for _ in 0..3 {
        assert_eq!(admitted(&limiter, 1).await, 1);
        seconds(10).await;
    }
    let refused = limiter.check("a").await.unwrap();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(30)));
    let refused = limiter.check_n("a", 3).await.unwrap();
    assert_eq!(refused.retry_after, Some(Duration::from_secs(50)));
    seconds(30).await;
    assert_eq!(admitted(&limiter, 2).await, 1);
}

/// Its name, and what it makes of the quota.
type Named = (&'static str, fn(Policy) -> Policy);

const ALL: [Named; 10] = [
    ("token bucket", |policy| policy),
    ("leaky bucket", Policy::leaky_bucket),
    ("leaky queue", |policy| {
        policy.leaky_queue(Duration::from_secs(60))
    }),
    ("fixed window", Policy::fixed_window),
    ("phase per key", Policy::phase_per_key),
    ("first hit", Policy::first_hit),
    ("two windows", Policy::two_windows),
    ("sub-windows", |policy| policy.sub_windows(4)),
    ("whole sub-windows", |policy| policy.whole_sub_windows(4)),
    ("sliding log", Policy::sliding_log),
];

#[tokio::test(start_paused = true)]
async fn every_algorithm_refunds_and_resets_and_never_lets_a_too_expensive_request_pass() {
    for (name, of) in ALL {
        let limiter = limiter(of(per_minute(10)));
        let full = limiter.peek("a").await.unwrap();
        let taken = limiter.check_n("a", 4).await.unwrap();
        assert_eq!(
            (taken.granted, taken.source),
            (4, Source::Backend),
            "{name}"
        );
        limiter.refund("a", 3).await.unwrap();
        let left = limiter.peek("a").await.unwrap().remaining;
        assert_eq!(left, full.remaining - 1, "{name}");
        limiter.reset("a").await.unwrap();
        assert_eq!(limiter.peek("a").await.unwrap(), full, "{name}");
        let never = limiter.check_n("a", 11).await.unwrap();
        assert_eq!((never.allowed, never.retry_after), (false, None), "{name}");
        assert_eq!(limiter.peek("a").await.unwrap(), full, "{name}");
    }
}

fn acquire(memory: &Memory, charges: &[Charge<'_>]) -> (bool, Decisions) {
    let mut out = Decisions::refused(charges.len());
    let Answer::Done(allowed) = memory.acquire(charges, &mut out) else {
        panic!("memory answers at once")
    };
    (allowed, out)
}

fn one(memory: &Memory, charge: Charge<'_>) -> Decision {
    acquire(memory, &[charge]).1[0]
}

fn registered(memory: &Memory, policy: Policy) -> PolicyId {
    memory.register(&[policy]).unwrap()[0]
}

#[tokio::test(start_paused = true)]
async fn a_lease_is_what_is_there_up_to_what_was_wanted_and_never_less_than_the_cost() {
    for (name, of) in ALL.into_iter().filter(|(name, _)| *name != "leaky queue") {
        let memory = Memory::default();
        let policy = registered(&memory, of(per_minute(10)));
        let charge = Charge::new(policy, b"a", 2);
        let granted = |want| {
            let decision = one(&memory, charge.want(want));
            (decision.allowed, decision.granted, decision.remaining)
        };
        assert_eq!(granted(6), (true, 6, 4), "{name}");
        assert_eq!(granted(0), (true, 2, 2), "{name}: less than the cost");
        assert_eq!(granted(u64::MAX), (true, 2, 0), "{name}: what is left");
        assert_eq!(
            granted(u64::MAX),
            (false, 0, 0),
            "{name}: less than the cost is left"
        );
        let look = one(&memory, Charge::new(policy, b"b", 0).want(5));
        assert_eq!((look.granted, look.remaining), (0, 10), "{name}: a look");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lease_of_a_bucket_is_rounded_down_to_whole_tokens() {
    let memory = Memory::default();
    let policy = registered(&memory, Policy::new("p", Quota::per_second(10)));
    let charge = Charge::new(policy, b"a", 1).want(100);
    assert_eq!(one(&memory, charge).granted, 10);
    advance(Duration::from_millis(299)).await;
    assert_eq!(one(&memory, charge).granted, 2);
    advance(Duration::from_millis(1)).await;
    assert_eq!(one(&memory, charge).granted, 1);
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_its_own_takes_a_policy_that_was_built_for_it() {
    for (name, of) in ALL {
        let memory = Memory::default();
        let [fixed, dynamic] = [of(per_minute(10)), of(per_minute(10)).dynamic_quotas()]
            .map(|policy| registered(&memory, policy));
        let twice = Quota::per_minute(20);
        let answer = memory.acquire(
            &[Charge::new(fixed, b"a", 1).quota(twice)],
            &mut [Decision::default()],
        );
        assert!(matches!(answer, Answer::Failed(_)), "{name}");
        let decision = one(&memory, Charge::new(dynamic, b"a", 1).quota(twice));
        assert_eq!((decision.allowed, decision.limit), (true, 20), "{name}");
        let decision = one(&memory, Charge::new(dynamic, b"b", 1));
        assert_eq!((decision.allowed, decision.limit), (true, 10), "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn sets_of_any_algorithms_are_charged_to_all_or_to_none() {
    let policies: Vec<Policy> = ALL
        .iter()
        .map(|(name, of)| of(Policy::new(*name, Quota::per_minute(10))))
        .chain([Policy::new("tight", Quota::per_minute(3)).sliding_log()])
        .collect();
    let memory = Memory::default();
    let ids = memory.register(&policies).unwrap();
    let charges: Vec<_> = ids.iter().map(|id| Charge::new(*id, b"a", 1)).collect();
    for _ in 0..3 {
        assert!(acquire(&memory, &charges).0);
    }
    for _ in 0..20 {
        let (allowed, decisions) = acquire(&memory, &charges);
        assert!(!allowed && !decisions[10].allowed);
        assert!(
            decisions[..10]
                .iter()
                .all(|one| one.allowed && one.granted == 0)
        );
    }
    let looks: Vec<_> = ids.iter().map(|id| Charge::new(*id, b"a", 0)).collect();
    for (number, left) in acquire(&memory, &looks).1.iter().enumerate() {
        let expected = match number {
            2 => 61 / 6 - 2,
            10 => 0,
            _ => 7,
        };
        assert_eq!(left.remaining, expected, "{}", policies[number].name());
    }
}

fn rejected(policy: Policy) -> (String, String, String) {
    let error: BuildError = Limiter::new(Memory::default(), policy).unwrap_err();
    assert_eq!(error.policy(), Some("p"));
    let [field, value, bound] = [error.field(), error.value(), error.bound()].map(str::to_owned);
    (field, value, bound)
}

fn expect(field: &str, value: impl ToString, bound: &str) -> (String, String, String) {
    (field.to_owned(), value.to_string(), bound.to_owned())
}

#[test]
fn numbers_that_an_algorithm_cannot_have_are_rejected() {
    let max = u64::MAX;
    for count in [0, 1, 101, u32::MAX] {
        let expected = expect("sub_windows", count, "2 to 100");
        assert_eq!(rejected(per_minute(5).sub_windows(count)), expected);
        assert_eq!(rejected(per_minute(5).whole_sub_windows(count)), expected);
    }
    assert_eq!(
        rejected(Policy::new("p", Quota::new(1, Duration::from_nanos(3))).sub_windows(4)),
        expect("window", "3ns", "at least 4ns, one for each sub-window")
    );
    assert_eq!(
        rejected(per_minute(10_001).sliding_log()),
        expect("limit", 10_001, "at most 10000 with a sliding log")
    );
    assert_eq!(
        rejected(per_minute(max).sliding_log()),
        expect("limit", max, "at most 10000 with a sliding log")
    );
    let waits = "above 0 and at most 100 years";
    assert_eq!(
        rejected(per_minute(1).leaky_queue(Duration::ZERO)),
        expect("max_wait", "0ns", waits)
    );
    let forever = format!("{:?}", Duration::MAX);
    assert_eq!(
        rejected(per_minute(1).leaky_queue(Duration::MAX)),
        expect("max_wait", forever, waits)
    );
    assert_eq!(
        rejected(per_minute(max).fixed_window()),
        expect(
            "limit",
            max,
            "at most 274877906943 in a fixed window of 60s"
        )
    );
    for of in [Policy::first_hit, Policy::two_windows] {
        assert_eq!(
            rejected(of(per_minute(max))),
            expect("limit", max, "at most 2305843009213693952")
        );
    }
    for (name, of) in ALL {
        assert_eq!(
            rejected(of(per_minute(0))),
            expect("limit", 0, "at least 1"),
            "{name}"
        );
        let endless = Policy::new("p", Quota::new(1, Duration::MAX));
        assert_eq!(rejected(of(endless)).2, "at most 100 years", "{name}");
        let none = Policy::new("p", Quota::new(1, Duration::ZERO));
        assert_eq!(
            rejected(of(none)),
            expect("window", "0ns", "at least 1ns"),
            "{name}"
        );
    }
}

#[test]
fn a_burst_is_rejected_where_there_is_none() {
    let bound = "the limit, 10: only token and leaky buckets have a burst";
    for (name, of) in ALL.into_iter().skip(2) {
        let burst = Policy::new("p", Quota::per_minute(10).burst(5));
        assert_eq!(rejected(of(burst)), expect("burst", 5, bound), "{name}");
    }
}

#[test]
fn the_last_algorithm_that_was_set_is_the_one() {
    let policy = per_minute(5).sliding_log().fixed_window().first_hit();
    assert_eq!(policy.algorithm(), Algorithm::FirstHit);
}
