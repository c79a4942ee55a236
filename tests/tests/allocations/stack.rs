//! The fast path allocates only the copies of the request.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tokio_test::{assert_ready_ok, task};
use tower::{Layer, Service};
use tower_attempt::ReplayableRequest;
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, ResponseHeaders, key};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::{Budget, Observer, RetryLayer};

use crate::allocations;

/// Answers at the first or at the second poll.
#[derive(Clone)]
struct Immediate;

type HttpRequest = Request<Full<Bytes>>;
type HttpResponse = Response<Full<Bytes>>;

impl Service<HttpRequest> for Immediate {
    type Response = HttpResponse;
    type Error = Infallible;
    type Future = Ready<Result<HttpResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: HttpRequest) -> Self::Future {
        ready(Ok(Response::default()))
    }
}

impl Service<u64> for Immediate {
    type Response = u64;
    type Error = Infallible;
    type Future = Ready<Result<u64, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(Ok(request))
    }
}

fn request() -> HttpRequest {
    Request::get("http://example.com/path?query")
        .header("x-api-key", "key")
        .header("accept", "*/*")
        .body(Full::from("hello"))
        .unwrap()
}

/// The number of allocations of a call on a used instance.
fn call<S, Req>(service: &mut S, request: impl Fn() -> Req) -> u64
where
    S: Service<Req>,
    S::Error: std::fmt::Debug,
{
    let mut made = 0;
    // The first call may allocate lasting state, such as a key's slot.
    for _ in 0..3 {
        let request = request();
        // Built outside of the count: the test's waker and its box.
        let mut unit = task::spawn(());
        (made, _) = allocations(|| {
            unit.enter(|cx, _| {
                assert_ready_ok!(service.poll_ready(cx));
                let mut future = std::pin::pin!(service.call(request));
                assert_ready_ok!(future.as_mut().poll(cx))
            })
        });
    }
    made
}

#[tokio::test]
async fn the_whole_stack_allocates_only_the_copies_of_the_request() {
    let budget = Budget::default();
    let retry = RetryLayer::builder().budget(budget.clone()).http();
    let hedge = HedgeLayer::builder()
        .fixed(Duration::from_millis(10))
        .shared_budget(budget)
        .http();
    let policy = Policy::new("per-client", Quota::per_second(1_000));
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(policy.by(key::header("x-api-key")))
        .headers(ResponseHeaders::Never);
    let stack = retry
        .build()
        .unwrap()
        .layer(hedge.build().unwrap().layer(Immediate));
    let mut stack = limit.build().unwrap().layer(stack);

    let bare = call(&mut Immediate, request);
    // One copy for retries, and one copy for hedges.
    let (copies, _) = {
        let mut request = request();
        allocations(|| (request.save(0), request.save(0)))
    };
    let (clones, _) = {
        let request = request();
        allocations(|| (request.clone(), request.clone()))
    };
    assert!(0 < copies && copies < clones, "{copies}, {clones} to clone");
    assert_eq!(call(&mut stack, request), bare + copies);
}

#[tokio::test]
async fn each_layer_allocates_only_its_copy_of_the_request() {
    let retry = RetryLayer::builder().build().unwrap();
    assert_eq!(call(&mut retry.layer(Immediate), || 7_u64), 0);
    let hedge = HedgeLayer::builder().fixed(Duration::from_millis(10));
    let hedge = hedge.budget(Budget::default()).build().unwrap();
    assert_eq!(call(&mut hedge.layer(Immediate), || 7_u64), 0);
    // A percentile that learns, with and without keys.
    let learning = HedgeLayer::builder().initial_delay(Duration::from_millis(10));
    let hedge = learning.clone().build().unwrap();
    assert_eq!(call(&mut hedge.layer(Immediate), || 7_u64), 0);
    let keyed = learning.key(|request: &u64| *request).build().unwrap();
    assert_eq!(call(&mut keyed.layer(Immediate), || 7_u64), 0);
}

/// The record of the call, and the list of its attempts.
#[tokio::test]
async fn an_observed_call_allocates_twice() {
    struct Idle;
    impl Observer for Idle {}
    let retry = RetryLayer::builder().observer(Idle).build().unwrap();
    assert_eq!(call(&mut retry.layer(Immediate), || 7_u64), 2);
    let hedge = HedgeLayer::builder().fixed(Duration::from_millis(10));
    let hedge = hedge.observer(Idle).build().unwrap();
    assert_eq!(call(&mut hedge.layer(Immediate), || 7_u64), 2);
}

/// The timer of a hedge is part of the future.
#[tokio::test]
async fn arming_a_hedge_allocates_nothing() {
    let hedge = HedgeLayer::builder().fixed(Duration::from_secs(10));
    let hedge = hedge.build().unwrap();
    // The service wakes its task directly, because tokio's yield allocates.
    let service = tower::service_fn(|request: u64| {
        let mut yielded = false;
        std::future::poll_fn(move |cx| match std::mem::replace(&mut yielded, true) {
            true => Poll::Ready(Ok::<_, Infallible>(request)),
            false => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        })
    });
    let mut service = hedge.layer(service);
    let mut unit = task::spawn(());
    let (made, ()) = allocations(|| {
        unit.enter(|cx, _| {
            assert_ready_ok!(service.poll_ready(cx));
            let mut future = std::pin::pin!(service.call(7));
            assert!(future.as_mut().poll(cx).is_pending());
            assert_ready_ok!(future.as_mut().poll(cx));
        });
    });
    assert_eq!(made, 0);
}

/// A request that must not be resent, or a layer that is off, needs no copy.
#[tokio::test]
async fn a_request_that_is_never_resent_is_not_copied() {
    let connect = || {
        let mut request = request();
        *request.method_mut() = http::Method::CONNECT;
        request
    };
    let bare = call(&mut Immediate, request);
    let retry = RetryLayer::http();
    assert_eq!(call(&mut retry.layer(Immediate), connect), bare);
    let once = RetryLayer::builder()
        .http()
        .max_attempts(1)
        .build()
        .unwrap();
    assert_eq!(call(&mut once.layer(Immediate), request), bare);
    let post = || {
        let mut request = request();
        *request.method_mut() = http::Method::POST;
        request
    };
    let hedge = HedgeLayer::builder().fan_out(2).http().build().unwrap();
    assert_eq!(call(&mut hedge.layer(Immediate), post), bare);
}
