//! Settings that a backend cannot keep.

use std::sync::Arc;

use http::StatusCode;
use tower::Layer;
use tower_dist_ratelimit::{Consistency, RateLimitLayerBuilder};

use super::*;
use crate::support::{Probe, from, send, slow};

#[test]
fn a_layer_has_at_least_one_policy_and_at_most_as_many_as_its_backend_supports() {
    rejects(
        RateLimitLayer::builder(Memory::default()).build(),
        None,
        "number of policies",
        "0",
        "at least 1",
    );
    let all = (0..17).map(|n| Policy::new(n.to_string(), Quota::per_second(1)));
    let many = all.fold(
        RateLimitLayer::builder(Memory::default()),
        |builder, policy| builder.limit(policy),
    );
    rejects(
        many.build(),
        None,
        "number of policies",
        "17",
        "at most 16 with this backend",
    );
    let two = RateLimitLayer::builder(Broken)
        .limit(Policy::new("a", Quota::per_second(1)))
        .limit(Policy::new("b", Quota::per_second(1)));
    rejects(
        two.build(),
        None,
        "number of policies",
        "2",
        "at most 1 with this backend",
    );
}

#[test]
fn a_fleet_has_at_least_one_instance_and_a_share_must_fit_into_memory() {
    let nobody = FailureMode::Local { instances: 0 };
    let policy = || Policy::new("p", Quota::per_second(1));
    let http = RateLimitLayer::builder(Memory::default()).limit(policy());
    let http = http.failure_mode(nobody).build().map(|_| ());
    let calls = CallLimitLayer::<()>::builder(Memory::default()).limit(policy());
    let calls = calls.failure_mode(nobody).build().map(|_| ());
    let waiting = CallLimitLayer::<()>::builder(Memory::default()).limit(policy());
    let waiting = waiting.failure_mode(nobody).waiting().build();
    let limiter = Limiter::builder(Memory::default(), policy());
    let limiter = limiter.failure_mode(nobody).build().map(|_| ());
    for built in [http, calls, waiting.map(|_| ()), limiter] {
        rejects(built, None, "instances", "0", "at least 1");
    }

    let many = |on_error| {
        let store = Scripted::new(Mood::AtOnce);
        let all = (0..17).map(|n| Policy::new(n.to_string(), Quota::per_second(1)));
        let builder = RateLimitLayer::builder(store).failure_mode(on_error);
        all.fold(builder, |builder, policy| builder.limit(policy))
            .build()
    };
    rejects(
        many(FailureMode::default()),
        None,
        "number of policies",
        "17",
        "at most 16 with FailureMode::Local",
    );
    assert!(many(FailureMode::Closed).is_ok());
}

#[test]
fn a_memory_takes_any_number_of_rebuilds_and_of_different_policies() {
    let memory = Arc::new(Memory::with_capacity(1));
    let build = |limit| {
        let pair = ["a", "b"].map(|name| Policy::new(name, Quota::per_second(limit)));
        let builder = RateLimitLayer::builder(Arc::clone(&memory));
        let builder = pair
            .into_iter()
            .fold(builder, |builder, one| builder.limit(one));
        builder.build().map(|_| ())
    };
    for limit in 1..100 {
        for _ in 0..3 {
            build(limit).unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn limiters_with_equal_policies_over_one_memory_share_their_counts() {
    let memory = Arc::new(Memory::default());
    let policy = |limit| Policy::new("p", Quota::per_hour(limit)).sliding_window_log();
    let limiter = |policy| Limiter::new(Arc::clone(&memory), policy).unwrap();
    for remaining in (0..100).rev() {
        let rebuilt = limiter(policy(100));
        assert_eq!(rebuilt.check("k").await.unwrap().remaining, remaining);
    }
    assert!(!limiter(policy(100)).check("k").await.unwrap().allowed);
    // A different quota makes a different policy.
    assert!(limiter(policy(101)).check("k").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn layers_with_equal_policies_over_one_memory_share_their_counts() {
    let memory = Arc::new(Memory::default());
    for whole in [false, true] {
        for status in [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS] {
            let mut builder = RateLimitLayer::builder(Arc::clone(&memory));
            if whole {
                builder = builder.limit(Policy::new("all", slow(10)));
            }
            let builder = builder.limit(Policy::new("each", slow(1)).by(key::header("key")));
            let mut service = builder.build().unwrap().layer(Probe::default());
            assert_eq!(send(&mut service, from("a")).await.status(), status);
        }
    }
}

#[test]
fn a_build_that_fails_registers_nothing() {
    let backend = Arc::new(Memory::default());
    let fails = |policy: Policy, change: fn(RateLimitLayerBuilder) -> RateLimitLayerBuilder| {
        let builder = RateLimitLayer::builder(Arc::clone(&backend)).limit(policy);
        change(builder).build().unwrap_err();
    };
    let policy = || Policy::new("p", Quota::per_second(10));
    fails(policy(), |b| b.headers(ResponseHeaders::NearLimit(2.0)));
    fails(policy(), |b| b.backend_timeout(Duration::ZERO));
    fails(policy(), |b| {
        b.consistency(Consistency::leased_for(Duration::ZERO))
    });
    fails(policy(), |b| {
        b.failure_mode(FailureMode::Local { instances: 0 })
    });
    fails(policy(), |b| {
        b.limit(Policy::new("p", Quota::per_second(1)))
    });
    fails(policy().cost(11), |b| b);
    // The local share and the local ledger cannot count this quota.
    let huge = || Policy::new("huge", Quota::per_second(10_000_000_000).burst(100));
    fails(huge(), |b| b);
    fails(huge(), |b| {
        b.failure_mode(FailureMode::Closed)
            .consistency(Consistency::Eventual(Duration::from_secs(1)))
    });
    let first = backend.register(&[policy()]).unwrap();
    assert_eq!(first, [PolicyId::new(0)]);
}

#[test]
fn a_capacity_beyond_the_address_space_is_rejected() {
    let policy = || Policy::new("p", Quota::per_second(1));
    for policy in [
        policy(),
        policy().sliding_window_log(),
        policy().dynamic_quotas(),
    ] {
        let limiter = Limiter::new(Memory::with_capacity(usize::MAX), policy);
        let max = usize::MAX.to_string();
        rejects(
            limiter,
            Some("p"),
            "capacity",
            &max,
            "what the system has memory for",
        );
    }
}

/// A backend that registers only the first of its policies.
struct Forgetful;

impl Backend for Forgetful {
    fn max_policies(&self) -> usize {
        2
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Broken.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        Broken.acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        Broken.settle(charges, delta)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Broken.reset(policy, key)
    }
}

/// Policies that the backend did not register would admit every request.
#[test]
fn a_backend_must_register_every_policy() {
    let layer = RateLimitLayer::builder(Forgetful)
        .limit(Policy::new("a", Quota::per_second(1)))
        .limit(Policy::new("b", Quota::per_second(1)))
        .build();
    rejects(
        layer,
        None,
        "backend",
        "one that names 1 of 2 policies",
        "one that names each",
    );
}

#[test]
fn a_share_that_is_too_large_is_an_error_about_the_instances() {
    let build = |instances| {
        // This backend accepts any policy.
        let policy = Policy::new("huge", Quota::per_second(10_000_000_000).burst(100));
        let limiter = Limiter::builder(Broken, policy);
        let on_error = FailureMode::Local { instances };
        limiter.failure_mode(on_error).build().map(|_| ())
    };
    let error = build(2).unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy \"huge\": instances is 2, but must be so large that this process can count its share: the limit of the share is \
         5000000000, but must be at most 2922710230 in a window of 1s; otherwise use FailureMode::Open or FailureMode::Closed"
    );
    assert!(build(4).is_ok());
}
