//! The largest, smallest and longest settings.

mod beyond;

use std::{convert::Infallible, time::Duration};

use http::{HeaderValue, StatusCode};
use tokio::time::{Instant, advance};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::{
    Algorithm, CallLimitLayer, LimitError, Limiter, Policy, Quota, RateLimitHandle, RateLimitLayer,
    Reason, TrustedProxies, backend::Memory, key,
};

use crate::support::{Probe, field, from, get, send};

const DAY: Duration = Duration::from_secs(86_400);
const YEAR: Duration = Duration::from_secs(31_557_600);

fn layer(policy: Policy) -> RateLimitLayer {
    let builder = RateLimitLayer::builder(Memory::default());
    builder.limit(policy).build().unwrap()
}

/// Every algorithm that can keep this quota.
fn all(quota: Quota) -> Vec<Policy> {
    let policy = || Policy::new("p", quota);
    let mut all = vec![
        policy(),
        policy().leaky_bucket(),
        policy().leaky_queue(Duration::from_nanos(1)),
        policy().fixed_window(),
        policy().fixed_window_staggered(),
        policy().fixed_window_from_first_request(),
        policy().sliding_window(),
        policy().sliding_window_log(),
    ];
    if quota.window() > Duration::from_nanos(1) {
        all.extend([
            policy().sliding_window_buckets(2),
            policy().sliding_window_strict(2),
        ]);
    }
    all
}

#[tokio::test(start_paused = true)]
async fn one_in_a_nanosecond_is_one_in_a_nanosecond() {
    for policy in all(Quota::new(1, Duration::from_nanos(1))) {
        let algorithm = policy.algorithm();
        if matches!(algorithm, Algorithm::LeakyQueue { .. }) {
            continue; // Who waits for a nanosecond waits for a timer, and then there is room again.
        }
        let mut service = layer(policy).layer(Probe::default());
        send(&mut service, get()).await;
        let rejected = send(&mut service, get()).await;
        assert_eq!(field(&rejected, "retry-after"), Some("1"), "{algorithm:?}");
        assert_eq!(field(&rejected, "ratelimit"), Some(r#""p";r=0;t=1"#));
        assert_eq!(field(&rejected, "ratelimit-policy"), Some(r#""p";q=1"#));
        advance(Duration::from_nanos(2)).await;
        let passes = send(&mut service, get()).await.status();
        assert_eq!(passes, StatusCode::OK, "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_in_a_day_is_one_in_a_day_however_the_clock_jumps() {
    for policy in all(Quota::per_day(1)) {
        let algorithm = policy.algorithm();
        let limiter = Limiter::new(Memory::default(), policy).unwrap();
        let mut passed = 0;
        for jump in [0, 1, 23, 1, 24, 7, 17, 240, 24 * 365, 1, 0, 25] {
            advance(Duration::from_secs(3600) * jump).await;
            let decision = limiter.check("a").await.unwrap();
            passed += u32::from(decision.allowed);
            let exact = decision.retry_after.unwrap();
            assert!(exact <= 2 * DAY, "{algorithm:?}: {decision:?}");
        }
        // Of the twelve at most eight are a day apart. A window with partial counts allows half as many.
        assert!((4..=8).contains(&passed), "{algorithm:?}: {passed}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_hundred_years_nothing_panics() {
    for policy in all(Quota::per_hour(2)) {
        let limiter = Limiter::new(Memory::default(), policy.dynamic_quotas()).unwrap();
        for _ in 0..5 {
            limiter.check("a").await.unwrap();
            limiter.charge("a", u64::MAX).await.unwrap();
            limiter.peek("a").await.unwrap();
            limiter.refund("a", u64::MAX).await.unwrap();
            limiter.check_n("a", u64::MAX).await.unwrap();
            advance(40 * YEAR).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_numbers_are_kept_or_rejected_and_named() {
    for limit in [u64::from(u32::MAX), 1 << 60, u64::MAX] {
        for window in [Duration::from_nanos(1), Duration::from_secs(1), 100 * YEAR] {
            for policy in all(Quota::new(limit, window)) {
                let algorithm = policy.algorithm();
                match RateLimitLayer::builder(Memory::default())
                    .limit(policy)
                    .build()
                {
                    Ok(layer) => {
                        let mut service = layer.layer(Probe::default());
                        let response = send(&mut service, get()).await;
                        assert_eq!(response.status(), StatusCode::OK, "{algorithm:?}");
                    }
                    Err(error) => {
                        assert!(["limit", "burst"].contains(&error.field()), "{error}");
                        assert_eq!(error.value(), limit.to_string());
                        assert!(error.to_string().contains(r#""p""#), "{error}");
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn costs_of_any_size_pass_or_never_do() {
    for policy in all(Quota::per_second(5)) {
        let algorithm = policy.algorithm();
        let policy = policy.cost_fn(|head| {
            let cost = head.headers().get("key").unwrap();
            cost.to_str().unwrap().parse().unwrap()
        });
        let mut service = layer(policy).layer(Probe::default());
        for cost in [6, 1 << 32, 1 << 61, 1 << 63, u64::MAX] {
            let rejected = send(&mut service, from(&cost.to_string())).await;
            assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS, "{cost}");
            assert_eq!(
                field(&rejected, "retry-after"),
                None,
                "{algorithm:?} {cost}"
            );
        }
        let passes = send(&mut service, from("5")).await.status();
        assert_eq!(passes, StatusCode::OK, "{algorithm:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn headers_of_any_bytes_and_lengths_are_keys_like_others() {
    let policy = Policy::new("p", Quota::per_day(1)).by((key::header("key"), key::header("other")));
    let policy = policy.missing_key(tower_dist_ratelimit::MissingKey::Reject);
    let mut service = layer(policy).layer(Probe::default());
    let long = vec![b'x'; 64 * 1024];
    let mut almost = long.clone();
    almost[40_000] = b'y';
    let values: [&[u8]; 7] = [
        b"",
        &[0x80, 0xff, 0xfe],
        "\u{fc}\u{1f600}".as_bytes(),
        &long,
        &almost,
        &long[1..],
        b"\t{}\"\\%00",
    ];
    for round in 0..2 {
        for (one, other) in values
            .iter()
            .flat_map(|one| values.map(|other| (one, other)))
        {
            let mut request = get();
            for (name, value) in [("key", *one), ("other", other)] {
                let value = HeaderValue::from_bytes(value).unwrap();
                request.headers_mut().insert(name, value);
            }
            let expected = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS][round];
            assert_eq!(send(&mut service, request).await.status(), expected);
        }
    }
}

/// Thousands of lines, as far as a header map takes them, from a peer that is trusted.
#[tokio::test(start_paused = true)]
async fn thousands_of_forwarding_headers_are_one_client() {
    let policy = Policy::new("p", Quota::per_day(1)).by(key::client_ip(TrustedProxies::private()));
    let mut service = layer(policy).layer(Probe::default());
    let request = |last: &'static str| {
        let mut request = get();
        let peer: std::net::SocketAddr = "[fe80::1%3]:80".parse().unwrap();
        request.extensions_mut().insert(peer);
        for line in ["10.0.0.7, fe80::9%eth0, 1.1.1.1"; 5_000]
            .into_iter()
            .chain([last])
        {
            let line = HeaderValue::from_static(line);
            request.headers_mut().append("x-forwarded-for", line);
        }
        request
    };
    for (last, expected) in [
        ("203.0.113.9", StatusCode::OK),
        ("203.0.113.9:1", StatusCode::TOO_MANY_REQUESTS),
        // An address that the last trusted proxy did not know.
        ("fe80::9%eth0", StatusCode::OK),
        ("garbage", StatusCode::TOO_MANY_REQUESTS),
    ] {
        let response = send(&mut service, request(last)).await;
        assert_eq!(response.status(), expected, "{last}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_throttle_of_the_shortest_window_is_as_fast_as_a_timer_and_of_the_longest_rejects() {
    let throttle = |quota| {
        let layer = CallLimitLayer::builder(Memory::default()).limit(Policy::new("p", quota));
        layer.waiting().build().unwrap()
    };
    let work = || service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let mut service = throttle(Quota::new(1, Duration::from_nanos(1))).layer(work());
    let started = Instant::now();
    let calls: Vec<_> = (0..100).map(|_| tokio::spawn(service.call(()))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert!(started.elapsed() <= Duration::from_millis(100));

    let mut service = throttle(Quota::new(1, 100 * YEAR)).layer(work());
    service.call(()).await.unwrap();
    let Err(LimitError::RateLimited(rejected)) = service.call(()).await else {
        panic!("it passes in a hundred years")
    };
    assert_eq!(rejected.reason(), Reason::TooLong);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_is_not_used_costs_nothing_and_clones_share_everything() {
    let layer = layer(Policy::new("p", Quota::per_day(2)));
    let probe = Probe::default();
    let mut services: Vec<_> = (0..10).map(|_| layer.clone().layer(probe.twin())).collect();
    for service in &mut services {
        service.ready().await.unwrap();
        drop(service.clone());
    }
    let mut statuses = Vec::new();
    for service in &mut services {
        statuses.push(send(service, get()).await.status().as_u16());
    }
    assert_eq!(statuses[..4], [200, 200, 429, 429]);
    // Rejected services work as before.
    advance(DAY / 2).await;
    assert_eq!(send(&mut services[3], get()).await.status(), StatusCode::OK);
    assert_eq!(probe.calls(), 3);
}

/// Corrections of any size, with another quota at each request.
#[tokio::test(start_paused = true)]
async fn quotas_that_change_with_every_request_survive_any_correction() {
    for algorithm in all(Quota::per_second(5)) {
        let policy = algorithm.quota_by(|head| {
            let limit = head.headers().get("key")?.to_str().ok()?.parse().ok()?;
            Some(Quota::new(limit, Duration::from_millis(limit % 5_000 + 1)))
        });
        let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
        let layer = layer.handle().build().unwrap();
        let mut service = layer.layer(service_fn(async |request: http::Request<()>| {
            let handle: &RateLimitHandle = request.extensions().get().unwrap();
            for tokens in [u64::MAX, 1, 1 << 62] {
                handle.charge(tokens);
                handle.refund(tokens);
            }
            handle.refund(u64::MAX);
            Ok::<_, Infallible>(http::Response::new(bytes::Bytes::new()))
        }));
        for limit in [1, 2, 0, 1_000_000, 3, u64::MAX, 10_001, 7] {
            let request = from(&limit.to_string());
            let response = service.ready().await.unwrap().call(request).await;
            let status = response.unwrap().status();
            let expected = [StatusCode::OK, StatusCode::TOO_MANY_REQUESTS][usize::from(limit == 0)];
            assert_eq!(status, expected, "{limit}");
            advance(Duration::from_secs(5)).await;
        }
    }
}
