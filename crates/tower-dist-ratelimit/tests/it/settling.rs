//! Costs that are corrected afterwards.

mod travelling;

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::{
    FailureMode, Limiter, Meter, Policy, RateLimitHandle, RateLimitLayer, RateLimitLayerBuilder,
    ResponseHeaders, Source,
    backend::{Backend, Memory},
    key,
};

use crate::support::{Broken, Probe, Remote, field, from, get, send, slow};

/// 100 tokens, one per second; every request reserves 10.
fn policy() -> Policy {
    Policy::new("p", slow(100)).cost(10)
}

fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
    RateLimitLayer::builder(backend).limit(policy()).handle()
}

/// Sends a request through the layer and returns its handle.
async fn handle(layer: &RateLimitLayer) -> RateLimitHandle {
    let seen = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&seen);
    let inner = service_fn(move |request: Request<()>| {
        *slot.lock().unwrap() = request.extensions().get::<RateLimitHandle>().cloned();
        async { Ok::<_, Infallible>(Response::new(Bytes::new())) }
    });
    layer.layer(inner).oneshot(get()).await.unwrap();
    let handle = seen.lock().unwrap().take();
    handle.unwrap()
}

/// Remaining tokens, as a free request reports them.
async fn left(layer: &RateLimitLayer) -> u64 {
    let decided = handle(layer).await;
    let remaining = decided.decisions().next().unwrap().1.remaining;
    decided.settle(0);
    remaining + 10
}

#[tokio::test(start_paused = true)]
async fn a_request_carries_its_decisions_only_if_configured() {
    let layer = builder(Memory::default()).build().unwrap();
    let handle = handle(&layer).await;
    let decisions: Vec<_> = handle.decisions().collect();
    assert_eq!(decisions.len(), 1);
    assert_eq!((decisions[0].0, decisions[0].1.remaining), ("p", 90));

    let inner = service_fn(async |request: Request<()>| {
        assert!(request.extensions().is_empty());
        Ok::<_, Infallible>(Response::new(Bytes::new()))
    });
    let layer = RateLimitLayer::builder(Memory::default()).limit(policy());
    let layer = layer.build().unwrap();
    layer.layer(inner).oneshot(get()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_reservation_is_corrected_to_the_used_tokens() {
    for (used, remaining) in [(0, 100), (3, 97), (10, 90), (25, 75)] {
        let layer = builder(Memory::default()).build().unwrap();
        handle(&layer).await.settle(used);
        assert_eq!(left(&layer).await, remaining, "{used}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_settled_once() {
    let layer = builder(Memory::default()).build().unwrap();
    let handle = handle(&layer).await;
    handle.clone().settle(4);
    for _ in 0..3 {
        handle.settle(0);
        handle.settle(50);
        handle.charge(7);
        handle.refund(7);
        drop(handle.meter());
    }
    assert_eq!(left(&layer).await, 96);
}

#[tokio::test]
async fn of_many_concurrent_settlements_one_applies() {
    let layer = builder(Memory::default()).build().unwrap();
    let handle = handle(&layer).await;
    let threads = (0..8).map(|_| {
        let handle = handle.clone();
        std::thread::spawn(move || handle.settle(1))
    });
    let threads: Vec<_> = threads.collect();
    threads
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    // Eight refunds of the nine unused tokens would take 72 of the 88 tokens of other requests.
    self::handle(&layer).await.charge(78);
    assert_eq!(left(&layer).await, 11);
}

#[tokio::test(start_paused = true)]
async fn a_refund_never_exceeds_the_charges() {
    let layer = builder(Memory::default()).build().unwrap();
    handle(&layer).await;
    let handle = handle(&layer).await;
    handle.charge(5);
    assert_eq!(left(&layer).await, 75);
    handle.refund(7);
    assert_eq!(left(&layer).await, 82);
    handle.refund(1_000);
    assert_eq!(left(&layer).await, 90, "the other request stays charged");
    handle.charge(1);
    handle.refund(u64::MAX);
    assert_eq!(left(&layer).await, 90);
}

#[tokio::test(start_paused = true)]
async fn later_charges_are_refunded_too() {
    let layer = builder(Memory::default()).build().unwrap();
    let handle = handle(&layer).await;
    handle.charge(30);
    assert_eq!(left(&layer).await, 60);
    handle.settle(0);
    assert_eq!(left(&layer).await, 100);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_until_a_debt_is_repaid() {
    let layer = builder(Memory::default()).build().unwrap();
    handle(&layer).await.settle(101);
    let mut service = layer.layer(Probe::default());
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(field(&response, "retry-after"), Some("11"));
}

#[tokio::test(start_paused = true)]
async fn more_than_any_number_is_a_debt_and_not_a_refund() {
    let layer = builder(Memory::default()).build().unwrap();
    let handle = handle(&layer).await;
    let mut service = layer.layer(Probe::default());
    for tokens in [u64::MAX, u64::MAX, 1] {
        handle.charge(tokens);
        let response = send(&mut service, get()).await;
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    }
    let mut meter = handle.meter();
    meter.add(u64::MAX);
    meter.add(u64::MAX);
    assert_eq!(meter.used(), u64::MAX);
    drop(meter);
    let response = send(&mut service, get()).await;
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
}

#[tokio::test(start_paused = true)]
async fn one_policy_of_several_is_corrected_alone() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("requests", slow(100)))
        .limit(policy())
        .limit(
            Policy::new("other", slow(100))
                .by(key::header("key"))
                .missing_key(tower_dist_ratelimit::MissingKey::Skip),
        )
        .handle()
        .build()
        .unwrap();
    let both = handle(&layer).await;
    assert!(both.policy("other").is_none(), "it was not asked");
    both.policy("p").unwrap().settle(50);
    both.settle(3);
    let again = handle(&layer).await;
    let remaining: Vec<_> = again.decisions().map(|(_, one)| one.remaining).collect();
    assert_eq!(remaining, [100 - 3 - 1, 100 - 50 - 10]);
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_dropped_half_way_settles_its_cost_so_far() {
    use futures_util::{Stream, StreamExt, stream};

    fn body(mut meter: Meter) -> impl Stream<Item = u64> {
        stream::iter(1..=4).map(move |tokens| {
            meter.add(tokens);
            tokens
        })
    }
    let layer = builder(Memory::default()).build().unwrap();
    let mut half = Box::pin(body(handle(&layer).await.meter()));
    assert_eq!((half.next().await, half.next().await), (Some(1), Some(2)));
    drop(half);
    assert_eq!(left(&layer).await, 97);

    let whole = body(handle(&layer).await.meter());
    assert_eq!(whole.collect::<Vec<_>>().await.len(), 4);
    assert_eq!(left(&layer).await, 87);

    let never_polled = body(handle(&layer).await.meter());
    drop(never_polled);
    assert_eq!(left(&layer).await, 87);
}

/// Answers with the status that the request's key names, or fails.
fn answering(request: &Request<()>) -> Result<Response<Bytes>, &'static str> {
    let status = request.headers()["key"].to_str().unwrap();
    let status = StatusCode::from_bytes(status.as_bytes()).map_err(|_| "broken")?;
    let mut response = Response::new(Bytes::new());
    *response.status_mut() = status;
    Ok(response)
}

#[tokio::test(start_paused = true)]
async fn failures_can_be_left_uncounted() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("p", slow(3)))
        .headers(ResponseHeaders::Never)
        .refund_when(|response| response.is_none_or(|one| one.status().is_server_error()))
        .build()
        .unwrap();
    let mut service = layer.layer(service_fn(async |request| answering(&request)));
    let mut status = async |key| {
        let call = service.ready().await.unwrap().call(from(key));
        call.await.map(|response| response.status().as_u16())
    };
    for _ in 0..5 {
        assert_eq!(status("503").await, Ok(503));
        assert_eq!(status("-").await, Err("broken"));
    }
    for _ in 0..3 {
        assert_eq!(status("404").await, Ok(404));
    }
    assert_eq!(status("503").await, Ok(429));
}

#[tokio::test(start_paused = true)]
async fn settled_tokens_are_not_refunded() {
    let layer = builder(Memory::default()).refund_when(|_| true);
    let layer = layer.build().unwrap();
    let inner = service_fn(async |request: Request<()>| {
        request
            .extensions()
            .get::<RateLimitHandle>()
            .unwrap()
            .settle(7);
        Ok::<_, Infallible>(Response::new(Bytes::new()))
    });
    layer.layer(inner).oneshot(get()).await.unwrap();
    assert_eq!(left(&layer).await, 93);
}
