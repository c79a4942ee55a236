//! Quotas that are looked up asynchronously.

use std::{
    future::ready,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer};
use tower_dist_ratelimit::{
    Event, FailureMode, Observer, Policy, Quota, RateLimitLayer, RateLimitLayerBuilder,
    ResponseHeaders, backend::Memory, key,
};

use super::builder;
use crate::support::{Probe, Remote, field, from, get, send, slow};

/// Sends one request through a new service. Returns the response and the time until it arrived.
async fn timed(builder: RateLimitLayerBuilder) -> (Response<Bytes>, Duration) {
    let mut service = builder.build().unwrap().layer(Probe::default());
    let started = Instant::now();
    let response = send(&mut service, get()).await;
    (response, started.elapsed())
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
        let builder = RateLimitLayer::builder(Memory::default())
            .limit(late)
            .limit(blocked)
            .failure_mode(FailureMode::Open);
        let (response, took) = timed(builder).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS, "{millis}");
        assert_eq!(took, Duration::from_millis(millis));
    }
}

#[tokio::test(start_paused = true)]
async fn the_backend_has_its_whole_timeout_after_a_look_up() {
    for (delay, status) in [(50, StatusCode::OK), (51, StatusCode::SERVICE_UNAVAILABLE)] {
        let builder = RateLimitLayer::builder(Remote::after(Duration::from_millis(delay)))
            .limit(Policy::new("p", slow(1)).quota_by_async(|_| looked_up()))
            .failure_mode(FailureMode::Closed);
        let (response, took) = timed(builder).await;
        assert_eq!(took, Duration::from_millis(20 + 50));
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
        let builder = RateLimitLayer::builder(Memory::default())
            .limit(policy())
            .failure_mode(action);
        let (response, took) = timed(builder).await;
        assert_eq!(took, Duration::from_millis(50));
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
