//! Bodies that settle when they end, fail or are dropped.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::{BodyExt, Full, StreamBody};
use tower::{Layer, ServiceExt, service_fn};
use tower_dist_ratelimit::{
    Meter, MeteredBody, Policy, RateLimitHandle, RateLimitLayer, backend::Memory,
};

use crate::support::{Probe, slow};

/// 1000 tokens, one a second, and every request reserves 100.
struct Tokens(RateLimitLayer);

impl Tokens {
    fn new() -> Self {
        let policy = Policy::new("p", slow(1_000)).cost(100);
        let layer = RateLimitLayer::builder(Memory::default()).limit(policy);
        Self(layer.handle().build().unwrap())
    }

    async fn handle(&self) -> RateLimitHandle {
        let inner = service_fn(async |request: Request<()>| {
            let handle: Option<&RateLimitHandle> = request.extensions().get();
            let mut response = Response::new(Full::<Bytes>::default());
            response.extensions_mut().insert(handle.cloned());
            Ok::<_, Infallible>(response)
        });
        let response = self.0.layer(inner).oneshot(Request::new(())).await.unwrap();
        let handle: Option<&Option<RateLimitHandle>> = response.extensions().get();
        handle.unwrap().clone().unwrap()
    }

    async fn meter(&self) -> Meter {
        self.handle().await.meter()
    }

    /// Tokens taken so far.
    async fn taken(&self) -> u64 {
        let handle = self.handle().await;
        let remaining = handle.decisions().next().unwrap().1.remaining;
        handle.settle(0);
        900 - remaining
    }
}

type Frames = Vec<Result<Frame<Bytes>, io::Error>>;

fn data(text: &'static str) -> Result<Frame<Bytes>, io::Error> {
    Ok(Frame::data(Bytes::from_static(text.as_bytes())))
}

fn trailers() -> Result<Frame<Bytes>, io::Error> {
    let mut trailers = HeaderMap::new();
    trailers.insert("x", "y".parse().unwrap());
    Ok(Frame::trailers(trailers))
}

/// Each byte is a token.
fn metered(
    meter: Meter,
    frames: Frames,
) -> MeteredBody<impl Body<Data = Bytes, Error = io::Error> + Unpin, impl FnMut(&Bytes) -> u64> {
    let body = StreamBody::new(stream::iter(frames));
    meter.body(body, |data: &Bytes| data.len() as u64)
}

#[tokio::test(start_paused = true)]
async fn a_body_settles_at_its_end_and_not_when_it_is_dropped() {
    let tokens = Tokens::new();
    let frames = vec![data("one"), data(""), data("three"), trailers()];
    let mut body = metered(tokens.meter().await, frames);
    for _ in 0..4 {
        assert!(body.frame().await.unwrap().is_ok());
        assert_eq!(tokens.taken().await, 100, "as long as it goes on");
    }
    assert!(body.frame().await.is_none());
    assert_eq!(tokens.taken().await, 8);
    drop(body);
    assert_eq!(tokens.taken().await, 8);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_fails_settles_the_data_sent_before() {
    let tokens = Tokens::new();
    let broken = Err(io::Error::other("broken"));
    let mut body = metered(tokens.meter().await, vec![data("one"), broken, data("two")]);
    assert!(body.frame().await.unwrap().is_ok());
    assert!(body.frame().await.unwrap().is_err());
    assert_eq!(tokens.taken().await, 3);
    assert!(body.frame().await.unwrap().is_ok(), "the body continues");
    assert_eq!(tokens.taken().await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_that_is_dropped_half_way_settles_the_data_sent_before() {
    let tokens = Tokens::new();
    let mut body = metered(tokens.meter().await, vec![data("one"), data("two")]);
    assert!(body.frame().await.unwrap().is_ok());
    drop(body);
    assert_eq!(tokens.taken().await, 3);
    drop(metered(tokens.meter().await, vec![data("never polled")]));
    assert_eq!(tokens.taken().await, 3);
}

#[tokio::test(start_paused = true)]
async fn a_body_can_cost_more_than_reserved_and_earlier_costs_count() {
    let tokens = Tokens::new();
    let mut meter = tokens.meter().await;
    meter.add(150);
    let body = metered(meter, (0..5).map(|_| data("1234567890")).collect());
    assert_eq!(body.collect().await.unwrap().to_bytes().len(), 50);
    assert_eq!(tokens.taken().await, 200);

    let body = stream::iter([data("a"), data("b")]);
    let body = StreamBody::new(body);
    let body = tokens.meter().await.body(body, |_| u64::MAX);
    body.collect().await.unwrap();
    let service = tokens.0.layer(Probe::default());
    let rejected = service.oneshot(Request::new(())).await.unwrap();
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
}

/// A body with a known size and end.
struct Sized(Full<Bytes>);

impl Body for Sized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[tokio::test(start_paused = true)]
async fn data_trailers_size_and_end_are_those_of_the_body_inside() {
    let tokens = Tokens::new();
    let frames = vec![data("one"), trailers(), data("two")];
    let body = metered(tokens.meter().await, frames);
    let mut seen = Vec::new();
    let mut frames = Box::pin(body.into_data_stream().map(Result::unwrap));
    while let Some(data) = frames.next().await {
        seen.push(data);
    }
    assert_eq!(seen, ["one", "two"]);
    let body = metered(tokens.meter().await, vec![data("one"), trailers()]);
    let whole = body.collect().await.unwrap();
    assert_eq!(whole.trailers().unwrap()["x"], "y");

    let inside = Sized(Full::from("seven b"));
    let mut body = tokens.meter().await.body(inside, |data| data.len() as u64);
    assert_eq!(body.size_hint().exact(), Some(7), "so Content-Length stays");
    assert!(!body.is_end_stream());
    body.frame().await;
    assert!(body.is_end_stream());
    fn sends<T: Send + Sync>(_: &T) {}
    sends(&body);
}

#[tokio::test(start_paused = true)]
async fn frameworks_accept_a_metered_body() {
    let tokens = Tokens::new();
    let axum = axum::body::Body::new(metered(tokens.meter().await, vec![data("axum")]));
    assert_eq!(axum.collect().await.unwrap().to_bytes(), "axum");
    assert_eq!(tokens.taken().await, 4);
}
