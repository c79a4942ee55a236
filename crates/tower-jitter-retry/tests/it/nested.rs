//! A retry layer above another.

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::{Backoff, Budget, RetryInfo, RetryLayer, StopReason};

use crate::support::Event::Stopped;
use crate::support::{Answer, Log, Upstream};

fn get() -> Request<Full<Bytes>> {
    Request::get("/").body(Full::default()).unwrap()
}

fn layer(log: &Log) -> RetryLayer<tower_jitter_retry::Http, Log> {
    let builder = RetryLayer::builder().backoff(Backoff::none()).http();
    let builder = builder.budget(Budget::unlimited());
    builder.observer(log.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_response_that_was_repeated_in_vain_is_left_alone_above() {
    let upstream = Upstream::new([Answer::status(503)]);
    let (outer, inner) = (Log::default(), Log::default());
    let service = layer(&outer).layer(layer(&inner).layer(upstream.clone()));
    let response = service.oneshot(get()).await.unwrap();
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    // The word of the layer that did something stays.
    let info: &RetryInfo = response.extensions().get().unwrap();
    assert_eq!(
        (info.attempts(), info.stop()),
        (3, StopReason::AttemptsExhausted)
    );
    assert_eq!(outer.take().pop(), Some(Stopped(1, StopReason::Nested)));
}

/// An error has no place for a mark, and a first attempt carries none: the layer above sends one
/// more, which the layer below leaves alone and says so.
#[tokio::test(start_paused = true)]
async fn errors_cost_one_attempt_more_and_not_three_times_as_many() {
    let upstream = Upstream::new([Answer::Error("reset")]);
    let (outer, inner) = (Log::default(), Log::default());
    let service = layer(&outer).layer(layer(&inner).layer(upstream.clone()));
    let error = service.oneshot(get()).await.unwrap_err();
    assert_eq!(error.to_string(), "reset");
    assert_eq!(upstream.seen().len(), 4);
    assert_eq!(outer.take().pop(), Some(Stopped(2, StopReason::Nested)));
    assert_eq!(inner.take().pop(), Some(Stopped(1, StopReason::Nested)));
}

#[tokio::test(start_paused = true)]
async fn three_layers_add_up_too() {
    let log = Log::default();
    for (answer, expected) in [(Answer::status(503), 3), (Answer::Error("reset"), 5)] {
        let upstream = Upstream::new([answer]);
        let service = layer(&log).layer(layer(&log).layer(layer(&log).layer(upstream.clone())));
        let _ = service.oneshot(get()).await;
        assert_eq!(upstream.seen().len(), expected);
    }
}

/// The layer below had nothing to say about it, so nothing keeps the one above from a repeat.
#[tokio::test(start_paused = true)]
async fn what_only_the_layer_above_repeats_it_repeats() {
    let upstream = Upstream::new([Answer::status(404), Answer::status(200)]);
    let inner = Log::default();
    let outer = RetryLayer::builder().backoff(Backoff::none()).http();
    let outer = outer.classify(|outcome| match outcome.status() {
        Some(StatusCode::NOT_FOUND) => tower_jitter_retry::Verdict::transient(),
        _ => outcome.verdict(),
    });
    let service = outer
        .build()
        .unwrap()
        .layer(layer(&inner).layer(upstream.clone()));
    let response = service.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(upstream.seen().len(), 2);
}
