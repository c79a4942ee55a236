//! Hedges between tower's own layers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use tests::{Answer, Probe, ProbeError, Request};
use tokio::time::{Instant, sleep, timeout};
use tower::balance::p2c::Balance;
use tower::buffer::Buffer;
use tower::discover::ServiceList;
use tower::limit::{ConcurrencyLimit, ConcurrencyLimitLayer};
use tower::load::Constant;
use tower::load_shed::LoadShed;
use tower::timeout::Timeout;
use tower::util::BoxCloneSyncService;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer, HedgeLayerBuilder};
use tower_jitter_retry::{Backoff, RetryLayer};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn hedge() -> HedgeLayerBuilder {
    HedgeLayer::builder().fixed(ms(10))
}

fn get() -> Request {
    Request::new(Full::new(Bytes::new()))
}

/// The 1-based n-th call takes `takes(n)` milliseconds.
fn service(
    takes: fn(usize) -> u64,
) -> impl tower::Service<(), Response = usize, Error = Infallible, Future: Send>
+ Clone
+ Send
+ Sync
+ 'static {
    let calls = Arc::new(AtomicUsize::new(0));
    service_fn(move |()| {
        let n = calls.fetch_add(1, SeqCst) + 1;
        async move {
            sleep(ms(takes(n))).await;
            Ok(n)
        }
    })
}

#[tokio::test(start_paused = true)]
async fn a_timeout_above_ends_a_retry_with_its_hedges() {
    let probe = Probe::new(|n, _| match n {
        1 => Answer::UNAVAILABLE,
        _ => Answer::OK.never(),
    });
    let record = probe.record();
    let retry = RetryLayer::builder().backoff(Backoff::none()).http();
    let stack = ServiceBuilder::new()
        .timeout(ms(100))
        .layer(retry.build().unwrap())
        .layer(hedge().max_hedges(2).http().build().unwrap())
        .service(probe);
    let start = Instant::now();
    let error = stack.oneshot(get()).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(start.elapsed(), ms(100));
    assert_eq!((record.calls(), record.in_flight()), (4, 0));
}

/// The timeout ends a stalled attempt, and its hedge wins.
#[tokio::test(start_paused = true)]
async fn a_timeout_below_ends_one_attempt() {
    let takes = |n| if n == 1 { u64::MAX } else { 30 };
    let stack = hedge().build().unwrap();
    let stack = stack.layer(Timeout::new(service(takes), ms(20)));
    let start = Instant::now();
    // Both attempts time out; the caller gets the failure of the first.
    let error = stack.clone().oneshot(()).await.unwrap_err();
    assert!(error.is::<tower::timeout::error::Elapsed>());
    assert_eq!(start.elapsed(), ms(30));
}

#[tokio::test(start_paused = true)]
async fn hedges_over_a_buffer_over_a_limit_wait_their_turn() {
    let layer = hedge().build().unwrap();
    let handle = layer.handle();
    let limited = ConcurrencyLimit::new(service(|n| if n % 2 == 1 { 100 } else { 5 }), 1);
    let stack = layer.layer(Buffer::new(limited, 1));
    let start = Instant::now();
    // The buffer accepts the hedge, and the concurrency limit releases it when the first attempt ends.
    for _ in 0..3 {
        let call = timeout(ms(500), stack.clone().oneshot(()));
        call.await.unwrap().unwrap();
    }
    assert!(start.elapsed() <= ms(320), "{:?}", start.elapsed());
    assert_eq!(handle.counts().hedge_wins, 0);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_behind_a_buffer_gets_the_hedges() {
    let slow: fn(usize) -> u64 = |n| if n == 1 { 1_000 } else { 5 };
    let endpoints = [slow, |_| 5, |_| 5].map(|takes| {
        let limited = ConcurrencyLimit::new(service(takes), 1);
        Constant::new(limited, 1)
    });
    let balance = Balance::new(ServiceList::new::<()>(endpoints));
    let layer = hedge().max_hedges(3).build().unwrap();
    let handle = layer.handle();
    let stack = layer.layer(Buffer::new(balance, 8));
    for _ in 0..20 {
        let call = timeout(ms(900), stack.clone().oneshot(()));
        call.await.unwrap().unwrap();
    }
    assert!(handle.counts().hedge_wins >= 1);
}

/// A load-shedding layer rejects the hedge immediately. tower's hedge returns that error.
#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_shed_does_not_win() {
    let layer = hedge().build().unwrap();
    let handle = layer.handle();
    let limit = ConcurrencyLimitLayer::new(1);
    let shed = LoadShed::new(limit.layer(service(|_| 50)));
    let stack = layer.layer(shed);
    let start = Instant::now();
    assert_eq!(stack.oneshot(()).await.unwrap(), 1);
    assert_eq!(start.elapsed(), ms(50));
    assert_eq!(handle.counts().hedges, 1);
}

#[tokio::test(start_paused = true)]
async fn the_services_of_one_layer_share_its_learned_latencies() {
    let layer = hedge().budget(Budget::ratio(0.0).burst(2)).build().unwrap();
    let handle = layer.handle();
    let services = [(); 3].map(|()| {
        let service = layer.clone().layer(service(|_| 50));
        BoxCloneSyncService::new(service.map_err(BoxError::from))
    });
    for service in &services {
        service.clone().oneshot(()).await.unwrap();
    }
    let counts = handle.counts();
    assert_eq!((counts.calls, counts.hedges, counts.denied), (3, 2, 1));
}

/// The services of nested boxed clones.
#[tokio::test(start_paused = true)]
async fn boxed_services_above_and_below_behave_the_same() {
    let probe = Probe::new(|n, _| match n {
        1 => Answer::OK.never(),
        _ => Answer::OK,
    });
    let record = probe.record();
    let boxed: BoxCloneSyncService<_, _, ProbeError> = BoxCloneSyncService::new(probe);
    let hedged = hedge().http().build().unwrap().layer(boxed);
    let mut stack = BoxCloneSyncService::new(hedged);
    for _ in 0..3 {
        stack.ready().await.unwrap();
        stack = stack.clone();
    }
    stack.oneshot(get()).await.unwrap();
    assert_eq!((record.calls(), record.in_flight()), (2, 0));
}
