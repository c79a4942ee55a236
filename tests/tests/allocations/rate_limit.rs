//! Allocations of a decision.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};
use tower_dist_ratelimit::{
    BuildError, CallLimitLayer, Decision, FailureMode, Limiter, Policy, Quota, RateLimitLayer,
    ResponseHeaders, TrustedProxies,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, Memory, PolicyId},
    key::{self, KeyExtractor},
};

use crate::allocations;

/// Returns the output of a future that is ready at its first poll.
pub(crate) fn now<F: Future>(future: F) -> F::Output {
    match std::pin::pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

#[derive(Clone)]
struct Inner;

impl Service<Request<()>> for Inner {
    type Response = Response<Bytes>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Bytes>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Bytes::new())))
    }
}

#[test]
fn an_allowed_request_without_fields_allocates_nothing() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("p", Quota::per_second(1_000)).by(key::header("key")))
        .headers(ResponseHeaders::Never)
        .build()
        .unwrap();
    let mut service = layer.layer(Inner);
    // This holds for a key's first request, too, because the slots exist already.
    for _ in 0..3 {
        let request = Request::builder()
            .header("key", "a-key-of-usual-length-0123456789")
            .body(())
            .unwrap();
        let (count, response) = allocations(|| now(service.call(request)).unwrap());
        assert_eq!((count, response.status()), (0, StatusCode::OK));
    }
}

#[test]
fn a_decision_of_the_limiter_allocates_nothing() {
    let limiter = Limiter::new(
        Memory::default(),
        Policy::new("p", Quota::per_second(1).burst(2)),
    )
    .unwrap();
    for allowed in [true, true, false, false] {
        let (count, decision): (u64, Decision) = allocations(|| now(limiter.check("a")).unwrap());
        assert_eq!((count, decision.allowed), (0, allowed));
    }
}

#[test]
fn a_decision_on_four_policies_allocates_nothing() {
    let policies = ["a", "b", "c", "d"]
        .map(|name| Policy::new(name, Quota::per_second(1).burst(2)).by(key::header("key")));
    let layer = policies.into_iter().fold(
        RateLimitLayer::builder(Memory::default()).headers(ResponseHeaders::Never),
        |layer, policy| layer.limit(policy),
    );
    let mut service = layer.build().unwrap().layer(Inner);
    for _ in 0..2 {
        let request = Request::builder().header("key", "k").body(()).unwrap();
        let (count, response) = allocations(|| now(service.call(request)).unwrap());
        assert_eq!((count, response.status()), (0, StatusCode::OK));
    }
}

/// Every kind of key extractor.
#[test]
fn extracting_the_key_of_a_client_allocates_nothing() {
    let proxies = TrustedProxies::private();
    let by = key::bearer().or(key::client_ip(proxies.clone()));
    let forwarded = key::client_ip(proxies.forwarded());
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("p", Quota::per_second(1_000)).by((by, (forwarded, key::method()))))
        .headers(ResponseHeaders::Never)
        .exempt(|head| head.uri().path() == "/healthz")
        .build()
        .unwrap();
    let mut service = layer.layer(Inner);
    for authorization in ["Bearer a.bearer.token", "None"] {
        let peer = std::net::SocketAddr::from(([127, 0, 0, 1], 80));
        let request = Request::builder()
            .header("authorization", authorization)
            .header("x-forwarded-for", "192.0.2.1, 203.0.113.9:4711, 10.0.0.1")
            .header(
                "forwarded",
                "for=192.0.2.1, for=\"[2001:db8::1]:80\", for=10.0.0.1",
            )
            .extension(peer)
            .body(())
            .unwrap();
        let (count, response) = allocations(|| now(service.call(request)).unwrap());
        assert_eq!((count, response.status()), (0, StatusCode::OK));
    }
}

#[derive(Clone)]
struct Any;

impl Service<u64> for Any {
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

#[test]
fn an_allowed_request_of_any_type_allocates_nothing_also_if_it_could_wait() {
    let policy = || Policy::new("p", Quota::per_second(1_000)).by_request(|request: &u64| *request);
    let rejecting = CallLimitLayer::builder(Memory::default()).limit(policy());
    let mut rejecting = rejecting.build().unwrap().layer(Any);
    let waiting = CallLimitLayer::builder(Memory::default()).limit(policy());
    let mut waiting = waiting.waiting().build().unwrap().layer(Any);
    for request in [7, 7, 8] {
        let (count, response) = allocations(|| now(rejecting.call(request)).unwrap());
        assert_eq!((count, response), (0, request));
        let (count, response) = allocations(|| now(waiting.call(request)).unwrap());
        assert_eq!((count, response), (0, request));
    }
}

/// The allocations that the docs of `tower-dist-ratelimit` state.
#[test]
fn header_fields_handles_and_refunds_take_the_allocations_of_the_docs() {
    let layer = || {
        let policy = Policy::new("p", Quota::per_second(1_000)).by(key::header("key"));
        RateLimitLayer::builder(Memory::default()).limit(policy)
    };
    let counted = |layer: RateLimitLayer| {
        let mut service = layer.layer(Inner);
        // The first call builds shared state.
        let [_, count] = [(); 2].map(|()| {
            let request = Request::builder().header("key", "a-key").body(()).unwrap();
            allocations(|| now(service.call(request)).unwrap()).0
        });
        count
    };
    let fields = counted(layer().build().unwrap());
    let bare = || layer().headers(ResponseHeaders::Never);
    let handle = counted(bare().handle().build().unwrap());
    let refund = counted(bare().refund_when(|_| false).build().unwrap());
    // The first extension of a request takes three allocations.
    assert_eq!([fields, handle, refund], [3, 2 + 3, 3]);
}

/// A backend that fails immediately.
pub(crate) struct Broken;

impl Backend for Broken {
    fn max_policies(&self) -> usize {
        1
    }

    fn register(&self, _: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        Ok(vec![PolicyId::new(0)])
    }

    fn acquire(&self, _: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        Answer::Failed(BackendError::new("broken"))
    }

    fn settle(&self, _: &[Charge<'_>], _: i64) -> Answer {
        Answer::Failed(BackendError::new("broken"))
    }

    fn reset(&self, _: PolicyId, _: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        Box::pin(ready(Err(BackendError::new("broken"))))
    }
}

#[tokio::test(start_paused = true)]
async fn an_allowed_request_allocates_nothing_while_the_circuit_is_open() {
    for action in [FailureMode::Open, FailureMode::Local { instances: 2 }] {
        let layer = RateLimitLayer::builder(Broken)
            .limit(Policy::new("p", Quota::per_second(1_000)))
            .headers(ResponseHeaders::Never)
            .failure_mode(action)
            .build()
            .unwrap();
        let mut service = layer.layer(Inner);
        for _ in 0..5 {
            now(service.call(Request::new(()))).unwrap();
        }
        let (count, response) = allocations(|| now(service.call(Request::new(()))).unwrap());
        assert_eq!((count, response.status()), (0, StatusCode::OK));
    }
}
