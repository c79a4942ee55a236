//! The largest and the smallest quotas that Redis counts.

use std::time::Duration;

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{
    Policy, Quota,
    backend::{Backend, Charge},
};

use crate::support::{Set, answered, connect, limiter};

#[tokio::test]
async fn quotas_that_doubles_cannot_count_are_build_errors() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    for (policy, says) in [
        (
            Policy::new("p", Quota::per_day(999_983)),
            "burst is 999983, but must be at most 52124 with 999983 tokens per 86400s on Redis, \
             which counts in parts of a token and exactly up to 2^52",
        ),
        (
            Policy::new("p", Quota::per_second((1 << 53) + 1).burst(1)),
            "limit is 9007199254740993, but must be at most 4503599627370496 on Redis",
        ),
        (
            Policy::new("p", Quota::per_second(1 << 53)).fixed_window(),
            "limit is 9007199254740992, but must be at most 99999999999999",
        ),
        (
            Policy::new("p", Quota::new(1, Duration::from_micros(10))).fixed_window(),
            "window is 10µs, but must be at least 1ms on Redis",
        ),
        (
            Policy::new("p", Quota::new(1, Duration::from_nanos(1_001))),
            "window is 1.001µs, but must be whole microseconds on Redis, whose clock counts those",
        ),
        (
            Policy::new("p", Quota::per_second(7)).leaky_queue(Duration::from_secs(1_000_000_000)),
            "max_wait is 1000000000s, but must be at most 643371374.338642s with this quota on Redis",
        ),
    ] {
        let error = redis.register(&[policy]).unwrap_err();
        assert_eq!(error.to_string(), format!("policy \"p\": {says}"));
    }
}

#[tokio::test]
async fn no_debt_is_so_large_that_it_is_forgotten() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let day = Quota::per_day(1);
    for quota in [day, Quota::per_second(1), Quota::per_second(1_000_000)] {
        let policies = [
            Policy::new("bucket", quota),
            Policy::new("dynamic", quota).dynamic_quotas(),
            Policy::new("queue", quota).leaky_queue(Duration::from_secs(1)),
            Policy::new("fixed", day).fixed_window(),
            Policy::new("first", day).fixed_window_from_first_request(),
            Policy::new("two", day).sliding_window(),
            Policy::new("sub", day).sliding_window_buckets(4),
        ];
        for policy in policies {
            let name = policy.name().to_owned();
            let set = Set::new(&redis, &[policy]);
            for tokens in [1 << 30, 1 << 52, i64::MAX] {
                set.settle(&name, 1, tokens).await.unwrap();
                let one = set.one(&name).await.unwrap();
                assert!(!one.allowed, "{name}, {quota:?}, {tokens}: {one:?}");
            }
            set.settle(&name, u64::MAX, -i64::MAX).await.unwrap();
            server.call(&["FLUSHALL"]);
        }
    }
}

#[tokio::test]
async fn a_quota_above_the_countable_maximum_never_rejects() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let own = Quota::per_day(1);
    let unlimited = Quota::per_second(u64::MAX);
    for policy in [
        Policy::new("bucket", own),
        Policy::new("queue", own).leaky_queue(Duration::from_secs(3600)),
        Policy::new("fixed", own).fixed_window(),
        Policy::new("sub", own).sliding_window_buckets(4),
    ] {
        let name = policy.name().to_owned();
        let id = redis.register(&[policy.dynamic_quotas()]).unwrap()[0];
        for cost in [0, 1, 1 << 40, 1] {
            let charge = [Charge::new(id, b"k", cost).quota(unlimited)];
            let verdict = answered(redis.acquire(&charge, &mut [Default::default()])).await;
            assert!(verdict.unwrap().allowed, "{name}");
        }
        let charge = [Charge::new(id, b"k", 1).quota(unlimited)];
        answered(redis.settle(&charge, i64::MAX)).await.unwrap();
    }
}

#[tokio::test]
async fn a_quota_without_a_burst_rejects_with_every_algorithm() {
    let server = Server::start();
    let redis = connect(&server.url()).await;
    let policy = |name| Policy::new(name, Quota::per_hour(9)).dynamic_quotas();
    for policy in [
        policy("bucket"),
        policy("queue").leaky_queue(Duration::from_secs(1)),
        policy("fixed").fixed_window(),
        policy("first").fixed_window_from_first_request(),
        policy("two").sliding_window(),
        policy("log").sliding_window_log(),
    ] {
        let limiter = limiter(&redis, policy);
        let nothing = limiter.with_quota(Quota::per_second(5).burst(0));
        let rejected = nothing.check("k").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.retry_after),
            (false, None),
            "{limiter:?}"
        );
    }
}
