//! The HTTP rules of the layer.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ::http::{HeaderValue, Method, Request};
use bytes::Bytes;
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::{
    Backoff, Budget, Deadline, DelaySource, Http, Mode, RetryLayer, RetryLayerBuilder,
    RetryOverride, StopReason,
};

use crate::support::Event::{Scheduled, Started, Stopped};
use crate::support::{Answer, Log, Upstream, builder, ms, refused_stream};

fn request(method: Method) -> Request<Full<Bytes>> {
    Request::builder()
        .method(method)
        .body(Full::default())
        .unwrap()
}

fn http() -> RetryLayerBuilder<Http> {
    builder().http()
}

#[tokio::test(start_paused = true)]
async fn the_first_proof_that_the_server_did_not_process_it_is_retried_immediately_and_for_free() {
    let log = Log::default();
    let refused = refused_stream().await;
    let upstream = Upstream::new([refused.clone(), refused, Answer::status(200)]);
    let broke = Budget::ratio(0.0).burst(1).initial(0);
    let layer = http().budget(broke).observer(log.clone()).build().unwrap();
    let start = Instant::now();
    // Also for an unsafe request.
    let post = request(Method::POST);
    layer
        .layer(upstream.clone())
        .oneshot(post)
        .await
        .unwrap_err();
    assert_eq!(start.elapsed(), Duration::ZERO);
    assert_eq!(
        log.take(),
        [
            Started(1),
            Scheduled(1, Duration::ZERO, DelaySource::Unprocessed),
            Started(2),
            // The second retry is neither immediate nor free.
            Stopped(2, StopReason::BudgetExhausted),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_second_refused_stream_backs_off() {
    let log = Log::default();
    let refused = refused_stream().await;
    let upstream = Upstream::new([refused.clone(), refused, Answer::status(200)]);
    let layer = http().observer(log.clone()).build().unwrap();
    layer
        .layer(upstream)
        .oneshot(request(Method::POST))
        .await
        .unwrap();
    assert_eq!(
        log.take()[1..],
        [
            Scheduled(1, Duration::ZERO, DelaySource::Unprocessed),
            Started(2),
            Scheduled(2, ms(100), DelaySource::Backoff),
            Started(3),
            Stopped(3, StopReason::Success),
        ]
    );
}

/// Otherwise a dead backend would receive twice the connection attempts of its healthy peers.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_backs_off_and_takes_a_token_for_every_retry() {
    let log = Log::default();
    let upstream = Upstream::new([Answer::Refused]);
    let budget = Budget::ratio(0.0).burst(2);
    let layer = http().budget(budget.clone()).observer(log.clone());
    let service = layer.build().unwrap().layer(upstream.clone());
    // Also for an unsafe request, because it was not sent.
    let post = || request(Method::POST);
    service.clone().oneshot(post()).await.unwrap_err();
    assert_eq!(
        log.take(),
        [
            Started(1),
            Scheduled(1, ms(100), DelaySource::Backoff),
            Started(2),
            Scheduled(2, ms(200), DelaySource::Backoff),
            Started(3),
            Stopped(3, StopReason::AttemptsExhausted),
        ]
    );
    service.oneshot(post()).await.unwrap_err();
    let expected = [Started(1), Stopped(1, StopReason::BudgetExhausted)];
    assert_eq!(log.take(), expected);
}

/// The pool has stale connections to a backend that has restarted and is not listening yet.
#[tokio::test(start_paused = true)]
async fn a_refused_connection_does_not_use_up_the_free_retry() {
    let log = Log::default();
    let refused = refused_stream().await;
    let upstream = Upstream::new([Answer::Refused, refused, Answer::status(200)]);
    let layer = http().observer(log.clone()).build().unwrap();
    let service = layer.layer(upstream);
    service.oneshot(request(Method::POST)).await.unwrap();
    let retries = [
        Scheduled(1, ms(100), DelaySource::Backoff),
        Scheduled(2, Duration::ZERO, DelaySource::Unprocessed),
    ];
    let log = log.take();
    assert_eq!([log[1], log[3]], retries);
}

#[tokio::test(start_paused = true)]
async fn a_free_retry_is_not_sent_after_the_deadline() {
    let upstream = Upstream::new([refused_stream().await, Answer::status(200)]);
    let layer = http().build().unwrap();
    let mut late = request(Method::GET);
    late.extensions_mut()
        .insert(RetryOverride::new().deadline(Deadline::at(Instant::now())));
    let service = layer.layer(upstream.clone());
    service.oneshot(late).await.unwrap_err();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_throttle_counts_the_second_unprocessed_attempt_and_not_the_first() {
    let throttle = Budget::grpc_throttle(2, 1.0);
    let layer = http().budget(throttle.clone()).build().unwrap();
    let refused = refused_stream().await;
    let once = Upstream::new([refused.clone(), Answer::status(501)]);
    let answer = layer.layer(once).oneshot(request(Method::GET)).await;
    assert_eq!(answer.unwrap().status(), 501);
    assert!(throttle.withdraw().is_some());
    let always = Upstream::new([refused]);
    let answer = layer.layer(always).oneshot(request(Method::GET)).await;
    answer.unwrap_err();
    assert!(throttle.withdraw().is_none());
}

#[tokio::test(start_paused = true)]
async fn off_sends_no_extra_attempt_not_even_a_free_retry() {
    let upstream = Upstream::new([refused_stream().await, Answer::status(200)]);
    let layer = http().mode(Mode::Off).build().unwrap();
    layer
        .layer(upstream.clone())
        .oneshot(request(Method::GET))
        .await
        .unwrap_err();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_zero_leaves_the_backoff_as_it_is() {
    // The last value is a date in the past.
    for retry_after in ["0", " 0 ", "Sun, 06 Nov 1994 08:49:37 GMT"] {
        let log = Log::default();
        let soon = Answer::Status(503, vec![("retry-after", retry_after)]);
        let upstream = Upstream::new([soon, Answer::status(200)]);
        let layer = http().observer(log.clone()).build().unwrap();
        let service = layer.layer(upstream);
        service.oneshot(request(Method::GET)).await.unwrap();
        let scheduled = Scheduled(1, ms(100), DelaySource::Backoff);
        assert_eq!(log.take()[1], scheduled, "{retry_after}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_429_is_retried_for_a_post_unless_switched_off() {
    let answers = || Upstream::new([Answer::status(429), Answer::status(200)]);
    let upstream = answers();
    let layer = http().build().unwrap();
    layer
        .layer(upstream.clone())
        .oneshot(request(Method::POST))
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 2);

    let careful = http().retry_429_for_idempotent_only().build().unwrap();
    for (method, attempts) in [(Method::POST, 1), (Method::GET, 2)] {
        let upstream = answers();
        careful
            .layer(upstream.clone())
            .oneshot(request(method))
            .await
            .unwrap();
        assert_eq!(upstream.seen().len(), attempts);
    }
    // A rule of the user does not change that.
    let layer = http().retry_429_for_idempotent_only();
    let layer = layer.classify(|outcome| outcome.verdict()).build().unwrap();
    let upstream = answers();
    layer
        .layer(upstream.clone())
        .oneshot(request(Method::POST))
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_generated_key_makes_a_post_idempotent_and_is_the_same_in_all_attempts() {
    static KEYS: AtomicU32 = AtomicU32::new(0);
    let layer = RetryLayer::builder()
        .backoff(Backoff::none())
        .http()
        .generate_idempotency_key(|| HeaderValue::from(KEYS.fetch_add(1, Ordering::Relaxed)))
        .build()
        .unwrap();
    let upstream = Upstream::new([Answer::status(503)]);
    let service = layer.layer(upstream.clone());
    let keys = |requests: Vec<::http::request::Parts>| -> Vec<Option<String>> {
        let key = |parts: ::http::request::Parts| {
            let key = parts.headers.get("idempotency-key")?;
            Some(key.to_str().unwrap().to_owned())
        };
        requests.into_iter().map(key).collect()
    };
    let key = |key: &str| Some(key.to_owned());

    for generated in ["0", "1"] {
        service
            .clone()
            .oneshot(request(Method::POST))
            .await
            .unwrap();
        assert_eq!(keys(upstream.seen()), vec![key(generated); 3]);
    }
    // A key from the caller stays.
    let mut own = request(Method::PATCH);
    own.headers_mut()
        .insert("idempotency-key", HeaderValue::from_static("mine"));
    service.clone().oneshot(own).await.unwrap();
    assert_eq!(keys(upstream.seen()), vec![key("mine"); 3]);
    // No key is added to an idempotent request, nor to a request that is never resent.
    for (method, attempts) in [(Method::PUT, 3), (Method::CONNECT, 1)] {
        service.clone().oneshot(request(method)).await.unwrap();
        assert_eq!(keys(upstream.seen()), vec![None; attempts]);
    }
    assert_eq!(KEYS.load(Ordering::Relaxed), 2);
}
