//! Quotas that differ between keys, and change.

mod looking_up;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::StatusCode;
use tower::{Layer, ServiceExt};
use tower_dist_ratelimit::{
    Policy, Quota, RateLimitLayer, RateLimitLayerBuilder, ResponseHeaders, backend::Memory, key,
};

use crate::support::{Noting, Probe, field, from, get, send, slow};

fn builder(policy: Policy) -> (Noting, RateLimitLayerBuilder) {
    let noting = Noting::default();
    let builder = RateLimitLayer::builder(noting.clone()).limit(policy);
    (noting, builder)
}

/// The quota per second in the header.
fn told(head: key::RequestParts<'_>) -> Option<Quota> {
    let limit = head.headers().get("key")?.to_str().ok()?.parse().ok()?;
    Some(Quota::per_second(limit))
}

#[tokio::test(start_paused = true)]
async fn each_key_has_its_quota_and_the_fields_report_it() {
    let (noting, builder) = builder(Policy::new("p", Quota::per_minute(7)).quota_by(told));
    let mut service = builder.build().unwrap().layer(Probe::default());
    let response = send(&mut service, from("50")).await;
    assert_eq!(noting.seen(), [(1, Some(Quota::per_second(50)))]);
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""p";q=50;w=1"#)
    );
    assert_eq!(field(&response, "ratelimit"), Some(r#""p";r=49;t=1"#));

    let response = send(&mut service, get()).await;
    assert_eq!(noting.seen(), [(1, None)]);
    assert_eq!(
        field(&response, "ratelimit-policy"),
        Some(r#""p";q=7;w=60"#)
    );
}

/// A window keeps its length under any quota, and a log keeps its bound.
#[tokio::test(start_paused = true)]
async fn the_fields_report_the_window_and_the_limit_in_force() {
    let hourly = |limit| move |_: key::RequestParts<'_>| Some(Quota::per_hour(limit));
    for (policy, limit, told) in [
        (
            Policy::new("p", Quota::per_minute(7)).fixed_window(),
            500,
            r#""p";q=500;w=60"#,
        ),
        (
            Policy::new("p", Quota::per_minute(7)).fixed_window_from_first_request(),
            500,
            r#""p";q=500;w=60"#,
        ),
        (
            Policy::new("p", Quota::per_minute(7)).sliding_window(),
            500,
            r#""p";q=500;w=60"#,
        ),
        (
            Policy::new("p", Quota::per_minute(7)).sliding_window_log(),
            50_000,
            r#""p";q=10000;w=60"#,
        ),
        (
            Policy::new("p", Quota::per_minute(7)),
            500,
            r#""p";q=500;w=3600"#,
        ),
    ] {
        let layer =
            RateLimitLayer::builder(Memory::default()).limit(policy.quota_by(hourly(limit)));
        let mut service = layer.build().unwrap().layer(Probe::default());
        let response = send(&mut service, get()).await;
        assert_eq!(field(&response, "ratelimit-policy"), Some(told));
    }
}

/// Windows have no burst. The burst of a dynamic quota does not affect `NearLimit`.
#[tokio::test(start_paused = true)]
async fn near_limit_in_a_window_is_a_share_of_its_limit() {
    for burst in [1, 1_000] {
        let quota = move |_: key::RequestParts<'_>| Some(Quota::per_minute(4).burst(burst));
        let policy = Policy::new("p", Quota::per_minute(9)).fixed_window();
        let layer = RateLimitLayer::builder(Memory::default()).limit(policy.quota_by(quota));
        let layer = layer
            .headers(ResponseHeaders::NearLimit(0.5))
            .build()
            .unwrap();
        let mut service = layer.layer(Probe::default());
        for told in [false, true, true, true, true] {
            let response = send(&mut service, get()).await;
            assert_eq!(field(&response, "ratelimit").is_some(), told, "{burst}");
        }
    }
}

/// The queue has 11 places, and half of them is 5.5. Its limit of 100 says nothing about them.
#[tokio::test(start_paused = true)]
async fn near_limit_in_a_leaky_queue_is_a_share_of_its_places() {
    let queue = Policy::new("p", Quota::per_second(100)).leaky_queue(Duration::from_millis(100));
    let layer = RateLimitLayer::builder(Memory::default()).limit(queue);
    let layer = layer.headers(ResponseHeaders::NearLimit(0.5));
    let service = layer.build().unwrap().layer(Probe::default());
    let responses = join_all((0..12).map(|_| service.clone().oneshot(get())));
    for (number, response) in responses.await.into_iter().enumerate() {
        let told = field(&response.unwrap(), "ratelimit").is_some();
        // The fifth request leaves six places.
        assert_eq!(told, number >= 4, "{number}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_changes_from_one_request_to_the_next() {
    let limit = Arc::new(AtomicU64::new(5));
    let now = Arc::clone(&limit);
    let quota = move |_: key::RequestParts<'_>| Some(Quota::per_second(now.load(Relaxed)));
    let (noting, builder) = builder(Policy::new("p", slow(1)).quota_by(quota));
    let mut service = builder.build().unwrap().layer(Probe::default());
    for changed in [5, 50, 3] {
        limit.store(changed, Relaxed);
        send(&mut service, get()).await;
        assert_eq!(noting.seen(), [(1, Some(Quota::per_second(changed)))]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_quota_of_zero_rejects_for_ever_without_the_backend() {
    for zero in [Quota::per_second(0), Quota::per_second(5).burst(0)] {
        let (noting, builder) = builder(Policy::new("p", slow(1)).quota_by(move |_| Some(zero)));
        let builder = builder.limit(Policy::new("other", slow(1)).hidden());
        let mut service = builder.build().unwrap().layer(Probe::default());
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(field(&response, "retry-after"), None);
        assert_eq!(field(&response, "ratelimit-policy"), Some(r#""p";q=0;w=1"#));
        assert_eq!(field(&response, "ratelimit"), Some(r#""p";r=0"#));
        assert_eq!(noting.seen(), []);
    }
}

#[tokio::test(start_paused = true)]
async fn an_invalid_dynamic_quota_is_replaced_by_the_policy_s_quota() {
    for wrong in [Quota::new(1, Duration::ZERO), Quota::new(1, Duration::MAX)] {
        let (noting, builder) = builder(Policy::new("p", slow(1)).quota_by(move |_| Some(wrong)));
        let mut service = builder.build().unwrap().layer(Probe::default());
        send(&mut service, get()).await;
        assert_eq!(noting.seen(), [(1, None)], "{wrong:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_raised_quota_admits_immediately_and_a_lowered_quota_rejects() {
    let limit = Arc::new(AtomicU64::new(5));
    let now = Arc::clone(&limit);
    let quota = move |_: key::RequestParts<'_>| Some(Quota::per_minute(now.load(Relaxed)));
    let policy = Policy::new("p", Quota::per_minute(1)).quota_by(quota);
    let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
    let mut service = layer.build().unwrap().layer(Probe::default());
    let mut admitted = async || {
        let mut admitted = 0;
        while send(&mut service, get()).await.status() == StatusCode::OK {
            admitted += 1;
        }
        admitted
    };
    assert_eq!(admitted().await, 5);
    limit.store(8, Relaxed);
    assert_eq!(admitted().await, 3);
    // Limitador underflows here and admits every request.
    limit.store(2, Relaxed);
    assert_eq!(admitted().await, 0);
    tokio::time::advance(Duration::from_secs(60)).await;
    assert!(admitted().await <= 2);
}
