//! The algorithm of each setter of a policy, by the clock.

mod charges;
mod numbers;

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
async fn a_queue_returns_the_wait_of_each_request() {
    let limiter = limiter(per_minute(60).leaky_queue(Duration::from_secs(2)));
    for delay in 0..=2 {
        let decision = limiter.check("a").await.unwrap();
        assert!(decision.allowed);
        assert_eq!(decision.delay, Duration::from_secs(delay));
    }
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(
        (rejected.allowed, rejected.retry_after),
        (false, Some(Duration::from_secs(1)))
    );
    assert_eq!(
        limiter.peek("b").await.unwrap().remaining,
        3,
        "another key, another queue"
    );
}

#[tokio::test(start_paused = true)]
async fn fixed_windows_begin_at_the_creation_of_the_limiter() {
    let limiter = limiter(per_minute(10).fixed_window());
    seconds(59).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(1)));
    seconds(1).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
}

#[tokio::test(start_paused = true)]
async fn a_window_from_the_first_hit_begins_with_it() {
    let limiter = limiter(per_minute(10).fixed_window_from_first_request());
    seconds(59).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(60)));
    seconds(60).await;
    assert_eq!(admitted(&limiter, 11).await, 10);
}

#[tokio::test(start_paused = true)]
async fn with_a_phase_per_key_windows_end_at_different_times_and_each_is_a_window_long() {
    let limiter = limiter(per_minute(1).fixed_window_staggered());
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
async fn the_previous_window_counts_by_its_remaining_share() {
    let limiter = limiter(per_minute(100).sliding_window());
    assert_eq!(admitted(&limiter, 60).await, 60);
    seconds(60 + 43).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 100 - 17);
}

#[tokio::test(start_paused = true)]
async fn only_the_oldest_sub_window_counts_in_part() {
    let limiter = limiter(per_minute(100).sliding_window_buckets(4));
    assert_eq!(admitted(&limiter, 60).await, 60);
    seconds(59).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 40);
    seconds(1 + 10).await;
    assert_eq!(limiter.peek("a").await.unwrap().remaining, 100 - 20);
}

#[tokio::test(start_paused = true)]
async fn whole_sub_windows_count_until_all_of_the_oldest_is_a_window_ago() {
    let limiter = limiter(per_minute(100).sliding_window_strict(4));
    assert_eq!(admitted(&limiter, 101).await, 100);
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(75)));
    seconds(74).await;
    assert_eq!(admitted(&limiter, 1).await, 0);
    seconds(1).await;
    assert_eq!(admitted(&limiter, 101).await, 100);
}

#[tokio::test(start_paused = true)]
async fn a_log_counts_each_request_for_exactly_a_window() {
    let limiter = limiter(per_minute(3).sliding_window_log());
    for _ in 0..3 {
        assert_eq!(admitted(&limiter, 1).await, 1);
        seconds(10).await;
    }
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(30)));
    let rejected = limiter.check_n("a", 3).await.unwrap();
    assert_eq!(rejected.retry_after, Some(Duration::from_secs(50)));
    seconds(30).await;
    assert_eq!(admitted(&limiter, 2).await, 1);
}

/// A name, and a setter of the algorithm.
type Named = (&'static str, fn(Policy) -> Policy);

const ALL: [Named; 10] = [
    ("token bucket", |policy| policy),
    ("leaky bucket", Policy::leaky_bucket),
    ("leaky queue", |policy| {
        policy.leaky_queue(Duration::from_secs(60))
    }),
    ("fixed window", Policy::fixed_window),
    ("phase per key", Policy::fixed_window_staggered),
    ("first hit", Policy::fixed_window_from_first_request),
    ("two windows", Policy::sliding_window),
    ("sub-windows", |policy| policy.sliding_window_buckets(4)),
    ("whole sub-windows", |policy| {
        policy.sliding_window_strict(4)
    }),
    ("sliding log", Policy::sliding_window_log),
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

#[test]
fn the_last_algorithm_that_was_set_is_the_one() {
    let policy = per_minute(5)
        .sliding_window_log()
        .fixed_window()
        .fixed_window_from_first_request();
    assert_eq!(policy.algorithm(), Algorithm::FixedWindowFromFirstRequest);
}
