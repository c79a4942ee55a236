//! What a decision costs.

use std::{
    convert::Infallible,
    future::{Ready, ready},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tower::{Layer, Service};
use tower_dist_ratelimit::{
    Decision, Fields, Limiter, Policy, Quota, RateLimitLayer, backend::Memory, key,
};

use crate::allocations;

/// Polls once; it must be enough.
fn now<F: Future>(future: F) -> F::Output {
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
        .headers(Fields::Never)
        .build()
        .unwrap();
    let mut service = layer.layer(Inner);
    // Also a key's first request: its slot is there already.
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
