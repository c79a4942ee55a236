//! A retry layer above another.

use ::http::{Request, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use tower::{Layer, Service, ServiceExt};
use tower_jitter_retry::{Backoff, Budget, Jitter, RetryInfo, RetryLayer, StopReason};

use crate::support::Event::Stopped;
use crate::support::{Answer, BoxError, Log, Upstream, ms};

fn get() -> Request<Full<Bytes>> {
    Request::get("/").body(Full::default()).unwrap()
}

fn layer(log: &Log) -> RetryLayer<tower_jitter_retry::Http, tower_jitter_retry::Observed> {
    let builder = RetryLayer::builder().backoff(Backoff::none()).http();
    let builder = builder.budget(Budget::unlimited());
    builder.observer(log.clone()).build().unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_response_that_a_layer_below_gave_up_on_is_not_retried_above() {
    let upstream = Upstream::new([Answer::status(503)]);
    let (outer, inner) = (Log::default(), Log::default());
    let service = layer(&outer).layer(layer(&inner).layer(upstream.clone()));
    let response = service.oneshot(get()).await.unwrap();
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    // The report of the layer that retried stays.
    let info: &RetryInfo = response.extensions().get().unwrap();
    assert_eq!(
        (info.attempts, info.stop),
        (3, StopReason::AttemptsExhausted)
    );
    assert_eq!(outer.take().pop(), Some(Stopped(1, StopReason::Nested)));
}

/// An error has no place for a mark, so the layers in one task count each other's retries.
#[tokio::test(start_paused = true)]
async fn errors_are_retried_by_one_of_two_layers() {
    let upstream = Upstream::new([Answer::Error("reset")]);
    let (outer, inner) = (Log::default(), Log::default());
    let service = layer(&outer).layer(layer(&inner).layer(upstream.clone()));
    let error = service.oneshot(get()).await.unwrap_err();
    assert_eq!(error.to_string(), "reset");
    assert_eq!(upstream.seen().len(), 3);
    assert_eq!(outer.take().pop(), Some(Stopped(1, StopReason::Nested)));
    let last = inner.take().pop();
    assert_eq!(last, Some(Stopped(3, StopReason::AttemptsExhausted)));
}

#[tokio::test(start_paused = true)]
async fn three_layers_send_three_attempts_too() {
    let log = Log::default();
    for answer in [Answer::status(503), Answer::Error("reset")] {
        let upstream = Upstream::new([answer]);
        let service = layer(&log).layer(layer(&log).layer(layer(&log).layer(upstream.clone())));
        let _ = service.oneshot(get()).await;
        assert_eq!(upstream.seen().len(), 3);
    }
}

/// Sends the requests of one call through two layers of three attempts. The outer one gives up on an attempt after a
/// second. Each request fails after `millis`. Returns how many requests arrive.
async fn requests_across_timeouts(answer: Answer, millis: u64, backoff: Backoff) -> usize {
    let builder = || {
        let builder = RetryLayer::builder().backoff(backoff);
        builder.http().budget(Budget::unlimited())
    };
    let upstream = Upstream::new([answer]);
    let slow = upstream.clone();
    let slow = tower::service_fn(move |request| {
        let answer = slow.clone().call(request);
        async move {
            tokio::time::sleep(ms(millis)).await;
            answer.await
        }
    });
    let inner = builder().build().unwrap().layer(slow);
    let outer = builder().attempt_timeout(ms(1_000)).build().unwrap();
    let _: Result<_, BoxError> = outer.layer(inner).oneshot(get()).await;
    upstream.seen().len()
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_the_layer_above_does_not_start_the_attempts_below_anew() {
    let constant = |millis| Backoff::constant(ms(millis)).jitter(Jitter::None);
    for answer in [Answer::status(503), Answer::Error("reset")] {
        for backoff in [Backoff::none(), constant(100), constant(500), constant(900)] {
            for millis in [1, 300, 400, 600, 900] {
                let requests = requests_across_timeouts(answer.clone(), millis, backoff).await;
                assert_eq!(requests, 3, "{answer:?} after {millis} ms, {backoff:?}");
            }
        }
    }
}

/// The layer below times out first, or not at all.
#[tokio::test(start_paused = true)]
async fn requests_without_a_response_are_sent_three_times() {
    for limit in [None, Some(400), Some(1_000), Some(5_000)] {
        let sent = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let count = sent.clone();
        let silent = tower::service_fn(move |_| {
            count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            std::future::pending::<Result<::http::Response<()>, BoxError>>()
        });
        let builder = || RetryLayer::builder().backoff(Backoff::none()).http();
        let outer = builder().attempt_timeout(ms(1_000)).build().unwrap();
        let error = match limit {
            None => {
                let inner = builder().build().unwrap().layer(silent);
                outer.layer(inner).oneshot(get()).await.unwrap_err()
            }
            Some(limit) => {
                let inner = builder().attempt_timeout(ms(limit)).build().unwrap();
                let inner = inner.layer(silent);
                outer.layer(inner).oneshot(get()).await.unwrap_err()
            }
        };
        assert!(error.is::<tower_jitter_retry::Elapsed>(), "{error}");
        assert_eq!(sent.load(std::sync::atomic::Ordering::Relaxed), 3);
    }
}

/// Only the layer above retries this status, so the layer below has used up no attempt.
#[tokio::test(start_paused = true)]
async fn a_retry_of_the_layer_above_leaves_later_failures_to_that_layer() {
    let upstream = Upstream::new([404, 503, 200].map(Answer::status));
    let outer = RetryLayer::builder().backoff(Backoff::none()).http();
    let outer = outer.classify(|outcome| match outcome.status() {
        Some(StatusCode::NOT_FOUND) => tower_jitter_retry::Verdict::transient(),
        _ => outcome.verdict(),
    });
    let inner = layer(&Log::default()).layer(upstream.clone());
    let service = outer.build().unwrap().layer(inner);
    let response = service.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(upstream.seen().len(), 3);
}

/// As after any other failure of such an attempt, the layer above decides on a further retry.
#[tokio::test(start_paused = true)]
async fn a_timeout_of_a_retry_of_the_layer_above_is_left_to_that_layer() {
    let sent = std::sync::atomic::AtomicU32::new(0);
    let upstream = tower::service_fn(|_| {
        let is_first = sent.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        async move {
            if !is_first {
                std::future::pending::<()>().await;
            }
            let response = ::http::Response::builder().status(404).body(());
            Ok::<_, BoxError>(response.unwrap())
        }
    });
    let log = Log::default();
    let builder = || RetryLayer::builder().backoff(Backoff::none()).http();
    let outer = builder()
        .max_attempts(2)
        .classify(|outcome| match outcome.status() {
            Some(StatusCode::NOT_FOUND) => tower_jitter_retry::Verdict::transient(),
            _ => outcome.verdict(),
        });
    let inner = builder().attempt_timeout(ms(1_000)).observer(log.clone());
    let inner = inner.build().unwrap().layer(upstream);
    let service = outer.build().unwrap().layer(inner);
    let error = service.oneshot(get()).await.unwrap_err();
    assert!(error.is::<tower_jitter_retry::Elapsed>(), "{error}");
    assert_eq!(log.take().pop(), Some(Stopped(1, StopReason::Nested)));
}

/// These requests have no place for a mark. Errors need none.
#[tokio::test(start_paused = true)]
async fn layers_of_other_services_do_not_multiply_errors() {
    let sent = std::cell::Cell::new(0);
    let failing = tower::service_fn(|()| {
        sent.set(sent.get() + 1);
        std::future::ready(Err::<(), _>("failed"))
    });
    let layer = || {
        RetryLayer::builder()
            .backoff(Backoff::none())
            .build()
            .unwrap()
    };
    let service = layer().layer(layer().layer(failing));
    assert_eq!(service.oneshot(()).await, Err("failed"));
    assert_eq!(sent.get(), 3);
}

/// Behind a buffer the layer below runs in another task, whose retries cannot be counted. An extra attempt carries a
/// mark there, so that one attempt more follows errors.
#[tokio::test(start_paused = true)]
async fn behind_a_buffer_errors_cost_one_attempt_more() {
    let log = Log::default();
    for (answer, expected) in [(Answer::status(503), 3), (Answer::Error("reset"), 4)] {
        let upstream = Upstream::new([answer]);
        let buffer = tower::buffer::Buffer::new(upstream.clone(), 1);
        let buffer = tower::buffer::Buffer::new(layer(&log).layer(buffer), 1);
        let spawned = tower::service_fn(move |request| {
            let answer = tokio::spawn(buffer.clone().oneshot(request));
            async move { answer.await.unwrap() }
        });
        let _ = layer(&log).layer(spawned).oneshot(get()).await;
        assert_eq!(upstream.seen().len(), expected);
    }
}

/// The layer below does not classify this outcome as retryable, so the layer above may retry it.
#[tokio::test(start_paused = true)]
async fn outcomes_that_only_the_layer_above_retries_are_retried() {
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
