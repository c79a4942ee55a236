//! Requests with streaming bodies.

use std::convert::Infallible;
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Channel, Empty};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::ReplayBody;

use crate::support::*;

/// An error type that cannot report an interrupted body.
#[derive(Debug)]
struct Foreign;

impl fmt::Display for Foreign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("foreign")
    }
}

impl StdError for Foreign {}

/// The body has 200 KiB and takes 40 ms; 64 KiB are recorded. The first attempt fails after it has read the whole body.
#[tokio::test(start_paused = true)]
async fn a_call_ends_when_its_first_attempt_fails_beyond_the_replay_limit() {
    let attempts = Arc::new(AtomicU32::new(0));
    let inner = service_fn(move |request: Request<UnsyncBoxBody<Bytes, Foreign>>| {
        let status = match attempts.fetch_add(1, Relaxed) {
            0 => StatusCode::SERVICE_UNAVAILABLE,
            _ => StatusCode::OK,
        };
        async move {
            request.into_body().collect().await.unwrap();
            let response = Response::builder().status(status);
            Ok::<_, Infallible>(response.body(Empty::<Bytes>::new()).unwrap())
        }
    });
    let (mut frames, body) = Channel::new(1);
    tokio::spawn(async move {
        for _ in 0..20 {
            sleep(ms(2)).await;
            let frame = Bytes::from(vec![7; 10 * 1024]);
            frames.send_data(frame).await.unwrap();
        }
    });
    let layer = fixed(10).http().hedge_unsafe_if(|_| true);
    let service = layer.build().unwrap().layer(inner);
    let start = Instant::now();
    let call = service.oneshot(Request::put("/").body(body.boxed_unsync()).unwrap());
    let response = tokio::time::timeout(ms(1_000), call).await.unwrap();
    assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(start.elapsed(), ms(40));
}

/// The hedge reads the body while the first attempt's server stalls.
#[tokio::test(start_paused = true)]
async fn the_caller_gets_the_error_of_the_body_that_a_hedge_meets() {
    type Body = ReplayBody<Channel<Bytes, io::Error>>;
    let inner = service_fn(|request: Request<Body>| async move {
        if !request.headers().contains_key("x-hedge-attempt") {
            sleep(ms(30)).await;
        }
        let read = request.into_body().collect().await;
        read.map(|_| Response::new(Empty::<Bytes>::new()))
    });
    let (frames, body) = Channel::new(1);
    frames.abort(io::Error::other("disk failed"));
    let layer = fixed(10).http().build().unwrap();
    let request = Request::get("/").body(ReplayBody::new(body)).unwrap();
    let error = layer.layer(inner).oneshot(request).await.unwrap_err();
    assert_eq!(error.to_string(), "disk failed");
    assert_eq!(layer.handle().counts().hedges, 1);
}
