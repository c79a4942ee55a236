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
use tower_hedge_latency::{Drain, ReplayBody};

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

type Upload = ReplayBody<Channel<Bytes, io::Error>>;

const LENGTH: usize = 200 * 1024;

/// An upload of 20 frames of 10 KiB, with a pause of 5 ms before each. 64 KiB are recorded.
fn upload() -> Request<Upload> {
    let (mut frames, body) = Channel::new(1);
    tokio::spawn(async move {
        for _ in 0..20 {
            sleep(ms(5)).await;
            let frame = Bytes::from(vec![7; 10 * 1024]);
            // The test may end before the upload.
            let _ = frames.send_data(frame).await;
        }
    });
    Request::put("/").body(ReplayBody::new(body)).unwrap()
}

/// The service answers with a status even if the body fails.
async fn status_of(request: Request<Upload>) -> Result<Response<Empty<Bytes>>, Infallible> {
    let body = request.into_body().collect().await;
    let status = match body.map(|body| body.to_bytes().len()) {
        Ok(LENGTH) => StatusCode::OK,
        _ => StatusCode::BAD_REQUEST,
    };
    let response = Response::builder().status(status);
    Ok(response.body(Empty::new()).unwrap())
}

#[tokio::test(start_paused = true)]
async fn the_response_of_an_interrupted_attempt_does_not_win() {
    let layer = fixed(10).http().hedge_unsafe_if(|_| true).build().unwrap();
    let service = layer.layer(service_fn(status_of));
    let response = service.oneshot(upload()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let counts = layer.handle().counts();
    assert_eq!((counts.hedges, counts.hedge_wins), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_interrupted_before_it_is_sent_is_skipped() {
    let layer = fixed(10).http().hedge_unsafe_if(|_| true).build().unwrap();
    // The service of the hedge becomes ready when the upload has passed the limit.
    let permits = Arc::new(tokio::sync::Semaphore::new(1));
    let later = Arc::clone(&permits);
    tokio::spawn(async move {
        sleep(ms(50)).await;
        later.add_permits(1);
    });
    let limited = tower::limit::ConcurrencyLimit::with_semaphore(service_fn(status_of), permits);
    let response = layer.layer(limited).oneshot(upload()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let counts = layer.handle().counts();
    assert_eq!((counts.hedges, counts.not_resendable), (0, 1));
}

/// The client of the failed attempt continues to send the body, to keep its connection usable.
#[tokio::test(start_paused = true)]
async fn a_failed_attempt_leaves_the_rest_of_the_body_to_its_hedge() {
    let layer = fixed(10).http().hedge_unsafe_if(|_| true).build().unwrap();
    let service = layer.layer(service_fn(async |request: Request<Upload>| {
        if request.headers().contains_key("x-hedge-attempt") {
            return status_of(request).await;
        }
        tokio::spawn(request.into_body().collect());
        sleep(ms(20)).await;
        let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
        Ok(response.body(Empty::new()).unwrap())
    }));
    let response = service.oneshot(upload()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(layer.handle().counts().hedge_wins, 1);
}

#[tokio::test(start_paused = true)]
async fn a_drained_loser_leaves_the_rest_of_the_body_to_the_winner() {
    let echo = service_fn(async |request: Request<Upload>| {
        if !request.headers().contains_key("x-hedge-attempt") {
            sleep(ms(200)).await;
        }
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    let hedge = fixed(10).http().hedge_unsafe_if(|_| true);
    let layer = hedge.drain(Drain::default()).build().unwrap();
    let response = layer.layer(echo).oneshot(upload()).await.unwrap();
    assert_eq!(layer.handle().counts().hedge_wins, 1);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes().len(), LENGTH);
}

#[tokio::test(start_paused = true)]
async fn a_drained_loser_leaves_the_body_to_the_winner_also_if_a_hedge_was_not_sent() {
    let echo = service_fn(async |request: Request<Upload>| {
        let is_hedge = request.headers().contains_key("x-hedge-attempt");
        sleep(ms(if is_hedge { 15 } else { 200 })).await;
        Ok::<_, Infallible>(Response::new(request.into_body()))
    });
    // The second hedge waits for a permit.
    let permits = Arc::new(tokio::sync::Semaphore::new(2));
    let limited = tower::limit::ConcurrencyLimit::with_semaphore(echo, permits);
    let hedge = fixed(10).max_hedges(2).http().hedge_unsafe_if(|_| true);
    let layer = hedge.drain(Drain::default()).build().unwrap();
    let response = layer.layer(limited).oneshot(upload()).await.unwrap();
    let counts = layer.handle().counts();
    assert_eq!((counts.hedge_wins, counts.not_ready), (1, 1));
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes().len(), LENGTH);
}
