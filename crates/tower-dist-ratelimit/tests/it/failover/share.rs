//! The local share of one instance of a fleet.

use tokio::time::advance;
use tower::Layer;
use tower_dist_ratelimit::{FailureMode, Limiter, Policy, Quota, RateLimitLayer, Source, key};

use super::ms;
use crate::support::{Mood, Probe, Scripted, from, get, send};

fn fallback(policy: Policy, fleet: u32) -> Limiter {
    let limiter = Limiter::builder(Scripted::new(Mood::Failing), policy);
    let limiter = limiter.failure_mode(FailureMode::Local { instances: fleet });
    limiter.build().unwrap()
}

/// Returns how many requests are allowed immediately.
async fn admitted(limiter: &Limiter, key: &str) -> u64 {
    let mut admitted = 0;
    loop {
        let decision = limiter.check(key).await.unwrap();
        assert_eq!(decision.source, Source::Local);
        if !decision.allowed {
            return admitted;
        }
        admitted += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn limits_are_divided_by_the_fleet_rounded_down_and_at_least_one() {
    for (fleet, share) in [(1, 25), (2, 12), (12, 2), (13, 1), (25, 1), (u32::MAX, 1)] {
        let bucket = || Policy::new("p", Quota::per_minute(25));
        for policy in [
            bucket(),
            bucket().leaky_bucket(),
            bucket().fixed_window(),
            bucket().fixed_window_from_first_request(),
            bucket().sliding_window(),
            bucket().sliding_window_buckets(4),
            bucket().sliding_window_strict(4),
            bucket().sliding_window_log(),
        ] {
            let algorithm = policy.algorithm();
            let limiter = fallback(policy, fleet);
            assert_eq!(admitted(&limiter, "a").await, share, "{algorithm:?}");
            assert_eq!(admitted(&limiter, "b").await, share, "each key has its own");
            assert_eq!(limiter.peek("b").await.unwrap().limit, share);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn bursts_and_limits_are_divided_separately() {
    let limiter = fallback(Policy::new("p", Quota::per_second(24).burst(6)), 3);
    assert_eq!(admitted(&limiter, "a").await, 2);
    advance(ms(124)).await;
    assert_eq!(admitted(&limiter, "a").await, 0);
    advance(ms(1)).await;
    assert_eq!(admitted(&limiter, "a").await, 1, "eight a second");
}

#[tokio::test(start_paused = true)]
async fn a_leaky_queue_spaces_its_share() {
    let policy = Policy::new("p", Quota::per_second(20)).leaky_queue(ms(250));
    let limiter = fallback(policy, 2);
    for delay in [0, 100, 200] {
        assert_eq!(limiter.check("a").await.unwrap().delay, ms(delay));
    }
    assert!(!limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn the_cost_of_one_request_always_fits_into_a_share() {
    for policy in [
        Policy::new("p", Quota::per_minute(60)).cost(10),
        Policy::new("p", Quota::per_minute(60))
            .cost(10)
            .fixed_window(),
    ] {
        let limiter = fallback(policy, 12);
        assert_eq!(admitted(&limiter, "a").await, 1);
    }
    // The share refills at a twelfth of the rate: five tokens per minute.
    let limiter = fallback(Policy::new("p", Quota::per_minute(60)).cost(10), 12);
    limiter.check("a").await.unwrap();
    let rejected = limiter.check("a").await.unwrap();
    assert_eq!(rejected.retry_after, Some(ms(120_000)));
}

#[tokio::test(start_paused = true)]
async fn quotas_by_key_are_divided_too_and_zero_stays_zero() {
    let policy = Policy::new("p", Quota::per_minute(40)).dynamic_quotas();
    let limiter = fallback(policy, 4);
    assert_eq!(admitted(&limiter, "a").await, 10);
    let premium = limiter.with_quota(Quota::per_minute(400));
    assert_eq!(admitted(&premium, "b").await, 100);
    let nothing = limiter.with_quota(Quota::per_minute(0));
    let rejected = nothing.check("c").await.unwrap();
    assert_eq!((rejected.allowed, rejected.retry_after), (false, None));
}

#[tokio::test(start_paused = true)]
async fn several_policies_are_still_decided_together_and_dynamic_ones_by_their_share() {
    let store = Scripted::new(Mood::Failing);
    let each = Policy::new("each", Quota::per_minute(8)).by(key::header("key"));
    let all = Policy::new("all", Quota::per_minute(1));
    let all = all.quota_by(|_| Some(Quota::per_minute(12)));
    let layer = RateLimitLayer::builder(store).limit(each).limit(all);
    let layer = layer.failure_mode(FailureMode::Local { instances: 4 });
    let mut service = layer.build().unwrap().layer(Probe::default());
    let mut statuses = Vec::new();
    for request in [from("a"), from("a"), from("a"), from("a"), get(), get()] {
        statuses.push(send(&mut service, request).await.status().as_u16());
    }
    // The rejections by "each" took none of the three tokens of "all".
    assert_eq!(statuses, [200, 200, 503, 503, 200, 503]);
}

#[tokio::test(start_paused = true)]
async fn a_quota_that_is_less_than_a_request_costs_has_no_larger_share() {
    for policy in [
        Policy::new("p", Quota::per_minute(60)),
        Policy::new("p", Quota::per_minute(60)).fixed_window(),
    ] {
        let limiter = fallback(policy.cost(10).dynamic_quotas(), 2);
        let small = limiter.with_quota(Quota::per_minute(6));
        let rejected = small.check("a").await.unwrap();
        assert_eq!((rejected.allowed, rejected.retry_after), (false, None));
    }
}
