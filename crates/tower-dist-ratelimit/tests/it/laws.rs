//! The contract of every tower layer.

use std::{cell::Cell, future::pending, rc::Rc, task::Poll, time::Duration};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service, ServiceBuilder, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_dist_ratelimit::{
    CallLimitLayer, Policy, Quota, RateLimit, RateLimitLayer, backend::Memory,
};
use tower_test::mock;

use crate::support::{Probe, Remote, get, send, slow};

fn layer(quota: Quota) -> RateLimitLayer {
    RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", quota))
        .build()
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_ready_instance_is_called_and_not_a_clone() {
    let probe = Probe::default();
    let mut service = layer(slow(3)).layer(probe.twin());
    for _ in 0..3 {
        assert_eq!(send(&mut service, get()).await.status(), StatusCode::OK);
    }
    assert_eq!((probe.calls(), probe.clones()), (3, 0));
}

#[tokio::test(start_paused = true)]
async fn a_late_decision_calls_the_ready_instance_and_leaves_an_unready_clone() {
    let probe = Probe::default();
    let remote = Remote::after(Duration::from_millis(3));
    let layer = RateLimitLayer::builder(remote)
        .limit(Policy::new("all", slow(2)))
        .build()
        .unwrap();
    let mut service = layer.layer(probe.twin());
    let first = service.ready().await.unwrap().call(get());
    let second = service.ready().await.unwrap().call(get());
    assert_eq!((probe.calls(), probe.clones()), (0, 2));
    let (first, second) = tokio::join!(first, second);
    assert_eq!(
        (first.unwrap().status(), second.unwrap().status()),
        (StatusCode::OK, StatusCode::OK)
    );
    assert_eq!((probe.calls(), probe.clones()), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn a_rejected_request_does_not_reach_the_inner_service() {
    let probe = Probe::default();
    let mut service = layer(slow(1)).layer(probe.twin());
    send(&mut service, get()).await;
    assert_eq!(
        send(&mut service, get()).await.status(),
        StatusCode::TOO_MANY_REQUESTS
    );
    assert_eq!(probe.calls(), 1);
}

fn concurrency_limited(layer: RateLimitLayer) -> RateLimit<tower::limit::ConcurrencyLimit<Probe>> {
    ServiceBuilder::new()
        .layer(layer)
        .layer(ConcurrencyLimitLayer::new(1))
        .service(Probe::default())
}

#[tokio::test(start_paused = true)]
async fn a_rejection_holds_no_concurrency_permit() {
    let mut idle = concurrency_limited(layer(slow(1)));
    let mut other = idle.clone();
    send(&mut idle, get()).await;
    let rejected = idle.ready().await.unwrap().call(get());
    // The idle service and the response that was not yet polled do not hold the only permit.
    assert!(poll_ready(&mut other).is_ready());
    assert_eq!(
        rejected.await.unwrap().status(),
        StatusCode::TOO_MANY_REQUESTS
    );
}

#[tokio::test(start_paused = true)]
async fn a_late_rejection_and_a_dropped_wait_give_the_permit_back() {
    let remote = Remote::after(Duration::from_millis(3));
    let layer = RateLimitLayer::builder(remote)
        .limit(Policy::new("all", slow(1)))
        .build()
        .unwrap();
    let mut service = concurrency_limited(layer);
    let mut other = service.clone();

    let dropped = service.ready().await.unwrap().call(get());
    assert!(
        poll_ready(&mut other).is_pending(),
        "the permit waits with the request"
    );
    drop(dropped);
    assert!(poll_ready(&mut other).is_ready());

    let rejected = other.call(get()).await.unwrap();
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    assert!(poll_ready(&mut service).is_ready());
}

fn poll_ready<S: Service<Request<()>>>(service: &mut S) -> Poll<Result<(), S::Error>> {
    service.poll_ready(&mut std::task::Context::from_waker(std::task::Waker::noop()))
}

#[tokio::test(start_paused = true)]
async fn readiness_and_its_errors_are_the_inner_service_s() {
    let (inner, mut handle) = mock::pair::<Request<()>, Response<Bytes>>();
    let mut service = layer(slow(1)).layer(inner);
    handle.allow(0);
    assert!(poll_ready(&mut service).is_pending());
    handle.allow(1);
    assert!(poll_ready(&mut service).is_ready());
    let call = service.call(get());
    handle
        .next_request()
        .await
        .unwrap()
        .1
        .send_response(Response::new(Bytes::new()));
    assert_eq!(call.await.unwrap().status(), StatusCode::OK);
    // The quota is used up, and readiness still depends on the inner service alone.
    handle.allow(1);
    assert!(poll_ready(&mut service).is_ready());
    handle.send_error("inner is broken");
    let Poll::Ready(Err(error)) = poll_ready(&mut service.clone()) else {
        panic!("ready")
    };
    assert_eq!(error.to_string(), "inner is broken");
}

#[tokio::test(start_paused = true)]
async fn errors_pass_through_unchanged() {
    let (mut service, mut handle) = mock::spawn_layer(layer(slow(9)));
    handle.allow(1);
    std::future::poll_fn(|_| service.poll_ready())
        .await
        .unwrap();
    let call = service.call(get());
    let (_, respond): (Request<()>, mock::SendResponse<Response<Bytes>>) =
        handle.next_request().await.unwrap();
    respond.send_error("as it was");
    assert_eq!(call.await.unwrap_err().to_string(), "as it was");
}

#[tokio::test(start_paused = true)]
async fn all_services_and_clones_of_a_layer_share_its_state() {
    // axum calls `layer` once per connection or route; state made there let 1500 requests through a cap of 5 a second.
    let layer = layer(Quota::per_second(5));
    let mut admitted = 0;
    for connection in 0..300 {
        let layer = layer.clone();
        let mut service = layer.layer(Probe::default()).clone();
        for _ in 0..5 {
            admitted += u32::from(send(&mut service, get()).await.status() == StatusCode::OK);
        }
        assert_eq!(admitted, 5, "connection {connection}");
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_response_future_drops_the_inner_call() {
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let sender = std::sync::Arc::new(std::sync::Mutex::new(Some(sender)));
    let inner = service_fn(move |_: Request<()>| {
        let held = sender.lock().unwrap().take();
        async move {
            let _held = held;
            pending::<Result<Response<Bytes>, std::convert::Infallible>>().await
        }
    });
    let mut service = layer(slow(1)).layer(inner);
    let call = service.ready().await.unwrap().call(get());
    drop(call);
    assert!(receiver.await.is_err());
}

#[test]
fn futures_and_layers_are_send_and_sync_when_the_service_is() {
    fn check<T: Send + Sync + 'static>() {}
    check::<RateLimitLayer>();
    check::<RateLimit<Probe>>();
    check::<<RateLimit<Probe> as Service<Request<()>>>::Future>();
    check::<tower_dist_ratelimit::Limiter>();
    check::<tower_dist_ratelimit::BuildError>();
    check::<tower_dist_ratelimit::backend::BackendError>();
}

/// Bodies of axum and tonic are `Send` but not `Sync`.
#[tokio::test(start_paused = true)]
async fn bodies_need_not_be_sync_in_any_waiting_request() {
    let inner = service_fn(async |request: Request<Cell<u8>>| {
        let body = Bytes::from(vec![request.into_body().get()]);
        Ok::<_, std::convert::Infallible>(Response::new(body))
    });
    let request = || Request::new(Cell::new(7));
    let queue = Policy::new("queue", Quota::per_second(1)).leaky_queue(Duration::from_secs(9));
    let http = RateLimitLayer::builder(Remote::after(Duration::from_millis(1)))
        .limit(queue)
        .build()
        .unwrap()
        .layer(inner);
    let remote = || Remote::after(Duration::from_millis(1));
    let calls = CallLimitLayer::builder(remote()).limit(Policy::new("all", slow(9)));
    let calls = calls.build().unwrap().layer(inner);
    let waits = CallLimitLayer::builder(remote()).limit(Policy::new("all", slow(1)));
    let waits = waits.waiting().build().unwrap().layer(inner);
    for _ in 0..2 {
        // A spawned future must be `Send`.
        let response = tokio::spawn(http.clone().oneshot(request())).await;
        assert_eq!(response.unwrap().unwrap().status(), StatusCode::OK);
        let response = tokio::spawn(calls.clone().oneshot(request())).await;
        assert_eq!(response.unwrap().unwrap().status(), StatusCode::OK);
        let response = tokio::spawn(waits.clone().oneshot(request())).await;
        assert_eq!(response.unwrap().unwrap().status(), StatusCode::OK);
    }
}

/// On a single thread, neither services nor bodies need to be `Send`.
#[tokio::test(start_paused = true)]
async fn services_and_bodies_of_one_thread_are_limited_too() {
    let calls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&calls);
    let inner = service_fn(move |request: Request<Rc<u8>>| {
        counted.set(counted.get() + *request.into_body());
        std::future::ready(Ok::<_, std::convert::Infallible>(Response::new(
            Bytes::new(),
        )))
    });
    let mut service = layer(slow(2)).layer(inner);
    let mut answers = Vec::new();
    for _ in 0..3 {
        let call = service
            .ready()
            .await
            .unwrap()
            .call(Request::new(Rc::new(3)));
        answers.push(call.await.unwrap().status().as_u16());
    }
    assert_eq!((answers, calls.get()), (vec![200, 200, 429], 6));
}
