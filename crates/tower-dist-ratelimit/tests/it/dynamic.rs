//! Quotas that differ between keys, and change.

use std::{
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use futures_util::future::join_all;
use http::StatusCode;
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer};
use tower_dist_ratelimit::{
    Event, FailureMode, Observer, Policy, Quota, RateLimitLayer, RateLimitLayerBuilder,
    ResponseHeaders, backend::Memory, key,
};

use crate::support::{Noting, Probe, Remote, field, from, get, send, slow};

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

/// Returns the quota after 20 ms.
async fn looked_up() -> Option<Quota> {
    found_after(20).await
}

async fn found_after(millis: u64) -> Option<Quota> {
    sleep(Duration::from_millis(millis)).await;
    Some(Quota::per_second(50))
}

#[tokio::test(start_paused = true)]
async fn a_quota_can_be_looked_up_and_several_at_the_same_time() {
    let (noting, builder) = builder(Policy::new("a", slow(1)).quota_by_async(|_| looked_up()));
    let builder = builder
        .limit(Policy::new("b", slow(1)).by(key::header("key")))
        .limit(
            Policy::new("c", slow(1))
                .cost(1)
                .quota_by_async(|_| looked_up()),
        )
        .limit(Policy::new("d", slow(1)).quota_by_async(|_| ready(None)));
    let probe = Probe::default();
    let mut service = builder.build().unwrap().layer(probe.twin());
    let started = Instant::now();
    let response = send(&mut service, from("x")).await;
    assert_eq!(started.elapsed(), Duration::from_millis(20));
    assert_eq!(response.status(), StatusCode::OK);
    let fifty = Some(Quota::per_second(50));
    assert_eq!(
        noting.seen(),
        [(1, fifty), (1, None), (1, fifty), (1, None)]
    );
    assert_eq!((probe.calls(), probe.clones()), (1, 1), "the ready one");
}

/// A client without any quota does not pass because the store of its other quota is down.
#[tokio::test(start_paused = true)]
async fn a_quota_of_zero_rejects_whatever_other_look_ups_do() {
    for millis in [1, 49] {
        let blocked = Policy::new("blocked", slow(1)).quota_by_async(move |_| async move {
            sleep(Duration::from_millis(millis)).await;
            Some(Quota::per_second(0))
        });
        let late = Policy::new("late", slow(1)).quota_by_async(|_| std::future::pending());
        let layer = RateLimitLayer::builder(Memory::default())
            .limit(late)
            .limit(blocked)
            .failure_mode(FailureMode::Open)
            .build()
            .unwrap();
        let mut service = layer.layer(Probe::default());
        let started = Instant::now();
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{millis}");
        assert_eq!(started.elapsed(), Duration::from_millis(millis));
    }
}

#[tokio::test(start_paused = true)]
async fn the_backend_has_its_whole_timeout_after_a_look_up() {
    for (delay, status) in [(50, StatusCode::OK), (51, StatusCode::SERVICE_UNAVAILABLE)] {
        let layer = RateLimitLayer::builder(Remote::after(Duration::from_millis(delay)))
            .limit(Policy::new("p", slow(1)).quota_by_async(|_| looked_up()))
            .failure_mode(FailureMode::Closed)
            .build()
            .unwrap();
        let mut service = layer.layer(Probe::default());
        let started = Instant::now();
        let response = send(&mut service, get()).await;
        assert_eq!(started.elapsed(), Duration::from_millis(20 + 50));
        assert_eq!(response.status(), status, "{delay}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_quota_look_ups_leave_the_circuit_of_a_healthy_backend_closed() {
    let layer = RateLimitLayer::builder(Remote::after(Duration::from_millis(2)))
        .limit(Policy::new("p", slow(1)).quota_by_async(|_| found_after(49)))
        .failure_mode(FailureMode::Closed)
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    for number in 0..20 {
        let started = Instant::now();
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::OK, "request {number}");
        assert_eq!(started.elapsed(), Duration::from_millis(49 + 2));
    }
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_never_ends_counts_as_a_backend_failure() {
    let policy = || Policy::new("p", slow(1)).quota_by_async(|_| std::future::pending());
    for (action, status) in [
        (FailureMode::Open, StatusCode::OK),
        (FailureMode::Closed, StatusCode::SERVICE_UNAVAILABLE),
    ] {
        let layer = RateLimitLayer::builder(Memory::default())
            .limit(policy())
            .failure_mode(action)
            .build()
            .unwrap();
        let mut service = layer.layer(Probe::default());
        let started = Instant::now();
        let response = send(&mut service, get()).await;
        assert_eq!(started.elapsed(), Duration::from_millis(50));
        assert_eq!(response.status(), status);
        assert_eq!(field(&response, "ratelimit"), None);
    }
}

/// Records the errors that it receives.
#[derive(Clone, Default)]
struct Errors(Arc<Mutex<Vec<String>>>);

impl Observer for Errors {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        if let Event::BackendFailed(error) = event {
            assert!(error.is_timeout());
            self.0.lock().unwrap().push(error.to_string());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_error_of_a_late_look_up_names_the_quota() {
    let errors = Errors::default();
    let policy = Policy::new("p", slow(1)).quota_by_async(|_| std::future::pending());
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(policy)
        .observer(errors.clone());
    let mut service = layer.build().unwrap().layer(Probe::default());
    send(&mut service, get()).await;
    let says = "the rate limit's backend did not decide: no quota within 50ms";
    assert_eq!(*errors.0.lock().unwrap(), [says]);
}

#[tokio::test(start_paused = true)]
async fn a_late_look_up_over_a_memory_leaves_the_policys_own_quota_in_force() {
    let policy = Policy::new("p", slow(2)).quota_by_async(|_| std::future::pending());
    let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
    let mut service = layer.build().unwrap().layer(Probe::default());
    let mut statuses = Vec::new();
    for _ in 0..3 {
        let started = Instant::now();
        statuses.push(send(&mut service, get()).await.status().as_u16());
        assert_eq!(started.elapsed(), Duration::from_millis(50));
    }
    assert_eq!(statuses, [200, 200, 503]);
}

/// Readiness belongs to the inner service, and a look-up holds a permit no longer than the timeout.
#[tokio::test(start_paused = true)]
async fn a_look_up_blocks_no_other_request_and_releases_its_permit() {
    let policy = Policy::new("p", slow(9)).quota_by_async(|_| std::future::pending());
    let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
    let layer = layer.failure_mode(FailureMode::Closed).build().unwrap();
    let inner = ConcurrencyLimitLayer::new(1).layer(Probe::default());
    let mut service = layer.layer(inner);
    let mut other = service.clone();
    let waits = service.ready().await.unwrap().call(get());
    let started = Instant::now();
    let (response, _) = tokio::join!(waits, async {
        // The other service gets the permit when this request is rejected.
        other.ready().await.unwrap();
    });
    assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(started.elapsed(), Duration::from_millis(50));
}

#[tokio::test(start_paused = true)]
async fn look_ups_are_made_once_per_request_and_not_for_the_exempt() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let policy = Policy::new("p", slow(9)).quota_by_async(move |_| {
        count.fetch_add(1, Relaxed);
        looked_up()
    });
    let (_, builder) = builder(policy);
    let builder = builder.exempt(|head| head.headers().contains_key("key"));
    let builder = builder.headers(ResponseHeaders::Never);
    let mut service = builder.build().unwrap().layer(Probe::default());
    send(&mut service, get()).await;
    send(&mut service, from("health")).await;
    assert_eq!(asked.load(Relaxed), 1);
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
