//! Readiness that holds a permit.

use std::convert::Infallible;

use tokio::time::{Instant, sleep, timeout};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer};

use crate::support::*;

/// A service that sleeps for the number of milliseconds in the request.
fn sleeping()
-> impl Service<u64, Response = u64, Error = Infallible, Future: Send> + Clone + Send + 'static {
    service_fn(|millis| async move {
        sleep(ms(millis)).await;
        Ok(millis)
    })
}

#[tokio::test(start_paused = true)]
async fn a_limit_of_one_is_no_deadlock_and_no_delay() {
    for layer in [fixed(10), HedgeLayer::builder().fan_out(3)] {
        let layer = layer.build().unwrap();
        let handle = layer.handle();
        let limit = ConcurrencyLimitLayer::new(1);
        let mut service = ServiceBuilder::new()
            .layer(layer)
            .layer(limit)
            .service(sleeping());
        let start = Instant::now();
        for _ in 0..3 {
            let call = service.ready().await.unwrap().call(50);
            assert_eq!(timeout(ms(60), call).await.unwrap().unwrap(), 50);
        }
        assert_eq!(start.elapsed(), ms(150));
        let counts = handle.counts();
        assert_eq!((counts.hedges, counts.hedge_wins), (0, 0));
        assert!(counts.not_ready >= 3);
    }
}

/// A superfluous hedge returns its permit.
#[tokio::test(start_paused = true)]
async fn no_permit_is_held_after_a_call() {
    let layer = fixed(10).build().unwrap();
    let limit = ConcurrencyLimitLayer::new(2);
    let service = ServiceBuilder::new()
        .layer(layer)
        .layer(limit)
        .service(sleeping());
    for _ in 0..5 {
        assert_eq!(service.clone().oneshot(15).await.unwrap(), 15);
        // Both permits are free.
        let (mut one, mut other) = (service.clone(), service.clone());
        timeout(ms(1), one.ready()).await.unwrap().unwrap();
        timeout(ms(1), other.ready()).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_buffer_below_is_hedged_through() {
    let layer = fixed(10).build().unwrap();
    let handle = layer.handle();
    let mut calls = 0;
    let slow_at_first = service_fn(move |(): ()| {
        calls += 1;
        let millis = if calls == 1 { 100 } else { 5 };
        async move {
            sleep(ms(millis)).await;
            Ok::<_, Infallible>(())
        }
    });
    // The buffer holds one request, so the hedge waits until the first attempt leaves it.
    let buffered = BufferLayer::new(1).layer(slow_at_first);
    let start = Instant::now();
    let call = layer.layer(buffered).oneshot(());
    timeout(ms(50), call).await.unwrap().unwrap();
    assert_eq!(start.elapsed(), ms(15));
    assert_eq!(handle.counts().hedge_wins, 1);
}

/// The layer checks for a token before it readies a hedge, and takes the token when it sends the hedge.
#[test]
fn a_hedge_that_is_not_sent_denies_no_concurrent_call() {
    let budget = Budget::ratio(0.0).burst(1);
    let layer = HedgeLayer::builder().fan_out(3).budget(budget.clone());
    let layer = layer.build().unwrap();
    // The first attempt holds the only permit, so no hedge is sent.
    let service = ServiceBuilder::new()
        .layer(layer)
        .concurrency_limit(1)
        .service_fn(async |()| {
            tokio::task::yield_now().await;
            Ok::<_, Infallible>(())
        });
    let calls = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread();
        let runtime = { runtime }.enable_time().build().unwrap();
        runtime.block_on(async {
            for _ in 0..20_000 {
                service.clone().oneshot(()).await.unwrap();
            }
        });
    });
    while !calls.is_finished() {
        let permit = budget.withdraw();
        assert!(permit.is_some(), "no other call took the only token");
    }
    calls.join().unwrap();
}
