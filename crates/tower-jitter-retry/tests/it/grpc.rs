//! The gRPC rules of the layer.

use ::http::{Request, request::Parts};
use bytes::Bytes;
use http_body_util::Full;
use tokio::time::Instant;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::{
    Budget, DelaySource, Grpc, GrpcCode, RetryInfo, RetryLayerBuilder, StopReason, Verdict,
};

use crate::support::Event::{Scheduled, Started, Stopped};
use crate::support::{Answer, Log, Upstream, builder, ms};

const UNAVAILABLE: &str = "14";
const RESOURCE_EXHAUSTED: &str = "8";

/// A layer that knows no idempotent method.
fn unknown() -> RetryLayerBuilder<Grpc> {
    builder().budget(Budget::unlimited()).grpc()
}

fn grpc() -> RetryLayerBuilder<Grpc> {
    unknown().idempotent_methods(["/helloworld.Greeter/SayHello"])
}

fn status(code: &'static str) -> Answer {
    Answer::Status(200, vec![("grpc-status", code)])
}

fn pushed_back(code: &'static str, millis: &'static str) -> Answer {
    let fields = vec![("grpc-status", code), ("grpc-retry-pushback-ms", millis)];
    Answer::Status(200, fields)
}

fn request(fields: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::post("/helloworld.Greeter/SayHello");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(Full::from("\0\0\0\0\0")).unwrap()
}

/// The value of a field in each attempt.
fn values(seen: Vec<Parts>, name: &str) -> Vec<Option<String>> {
    let value = |parts: Parts| Some(parts.headers.get(name)?.to_str().unwrap().to_owned());
    seen.into_iter().map(value).collect()
}

async fn attempts(answer: Answer) -> usize {
    let upstream = Upstream::new([answer]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    let _ = service.oneshot(request(&[])).await;
    upstream.seen().len()
}

#[tokio::test(start_paused = true)]
async fn only_outcomes_of_grfc_a6_are_retried() {
    for code in [
        "0", "1", "2", "3", "4", "5", "6", "7", "9", "10", "11", "12", "13", "15", "16", "x",
    ] {
        assert_eq!(attempts(status(code)).await, 1, "{code}");
    }
    assert_eq!(attempts(status(UNAVAILABLE)).await, 3);
    assert_eq!(attempts(status(RESOURCE_EXHAUSTED)).await, 1);
    assert_eq!(attempts(pushed_back(RESOURCE_EXHAUSTED, "5")).await, 3);
    // A response that has begun belongs to the call.
    assert_eq!(attempts(Answer::status(200)).await, 1);
    // HTTP responses without gRPC.
    for (code, expected) in [(429, 3), (502, 3), (503, 3), (504, 3), (500, 1), (404, 1)] {
        assert_eq!(attempts(Answer::status(code)).await, expected, "{code}");
    }
    // A refused connection is proof; other errors are not.
    assert_eq!(attempts(Answer::Refused).await, 3);
    assert_eq!(attempts(Answer::Error("unknown")).await, 1);
}

#[tokio::test(start_paused = true)]
async fn pushback_is_the_exact_delay_and_the_backoff_starts_anew() {
    let log = Log::default();
    let upstream = Upstream::new([
        status(UNAVAILABLE),
        status(UNAVAILABLE),
        pushed_back(UNAVAILABLE, "7"),
        status(UNAVAILABLE),
        status("0"),
    ]);
    let layer = grpc()
        .max_attempts(5)
        .observer(log.clone())
        .build()
        .unwrap();
    layer.layer(upstream).oneshot(request(&[])).await.unwrap();
    assert_eq!(
        log.take(),
        [
            Started(1),
            Scheduled(1, ms(100), DelaySource::Backoff),
            Started(2),
            Scheduled(2, ms(200), DelaySource::Backoff),
            Started(3),
            Scheduled(3, ms(7), DelaySource::Server),
            Started(4),
            Scheduled(4, ms(100), DelaySource::Backoff),
            Started(5),
            Stopped(5, StopReason::Success),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_negative_or_unparsable_pushback_forbids_a_retry() {
    for pushback in ["-1", "soon", ""] {
        let upstream = Upstream::new([pushed_back(UNAVAILABLE, pushback)]);
        let service = grpc().build().unwrap().layer(upstream.clone());
        let response = service.oneshot(request(&[])).await.unwrap();
        assert_eq!(upstream.seen().len(), 1);
        let info: &RetryInfo = response.extensions().get().unwrap();
        assert_eq!(info.stop, StopReason::RetryForbidden, "{pushback:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_longer_pushback_than_allowed_ends_the_call() {
    let upstream = Upstream::new([pushed_back(UNAVAILABLE, "60001")]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    let response = service.oneshot(request(&[])).await.unwrap();
    let info: &RetryInfo = response.extensions().get().unwrap();
    assert_eq!(info.stop, StopReason::RetryAfterTooLong);
}

#[tokio::test(start_paused = true)]
async fn extra_attempts_say_how_many_came_before_them() {
    let upstream = Upstream::new([status(UNAVAILABLE)]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    service.oneshot(request(&[])).await.unwrap();
    let previous = |count: &str| Some(count.to_owned());
    let name = "grpc-previous-rpc-attempts";
    assert_eq!(
        values(upstream.seen(), name),
        [None, previous("1"), previous("2")]
    );
    // An attempt that the server did not process does not count.
    let upstream = Upstream::new([Answer::Refused, status(UNAVAILABLE)]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    service.oneshot(request(&[])).await.unwrap();
    assert_eq!(values(upstream.seen(), name), [None, None, previous("1")]);
}

#[tokio::test(start_paused = true)]
async fn extra_attempts_carry_the_remaining_timeout() {
    let upstream = Upstream::new([status(UNAVAILABLE)]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    let start = Instant::now();
    service
        .oneshot(request(&[("grpc-timeout", "1S")]))
        .await
        .unwrap();
    assert_eq!(start.elapsed(), ms(300));
    let timeouts = ["1S", "900000u", "700000u"].map(|value| Some(value.to_owned()));
    assert_eq!(values(upstream.seen(), "grpc-timeout"), timeouts);
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_timeout() {
    let upstream = Upstream::new([status(UNAVAILABLE)]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    let start = Instant::now();
    let response = service
        .oneshot(request(&[("grpc-timeout", "300m")]))
        .await
        .unwrap();
    // The third attempt would be due at this instant.
    assert_eq!(start.elapsed(), ms(100));
    let info: &RetryInfo = response.extensions().get().unwrap();
    assert_eq!(
        (info.attempts, info.stop),
        (2, StopReason::DeadlineExceeded)
    );
}

#[tokio::test(start_paused = true)]
async fn a_malformed_timeout_is_none_and_stays() {
    let upstream = Upstream::new([status(UNAVAILABLE)]);
    let service = grpc().build().unwrap().layer(upstream.clone());
    service
        .oneshot(request(&[("grpc-timeout", "soon")]))
        .await
        .unwrap();
    let timeouts = values(upstream.seen(), "grpc-timeout");
    assert_eq!(timeouts, vec![Some("soon".to_owned()); 3]);
}

#[tokio::test(start_paused = true)]
async fn a_closure_has_the_last_word() {
    let layer = grpc().classify(|outcome| match outcome.code() {
        Some(GrpcCode::Aborted) => Verdict::transient(),
        Some(GrpcCode::Unavailable) => Verdict::Fatal,
        _ => outcome.verdict(),
    });
    let layer = layer.build().unwrap();
    for (answer, expected) in [
        (status("10"), 3),
        (status(UNAVAILABLE), 1),
        (Answer::Refused, 1),
    ] {
        let upstream = Upstream::new([answer]);
        let _ = layer.layer(upstream.clone()).oneshot(request(&[])).await;
        assert_eq!(upstream.seen().len(), expected);
    }
}

mod time_limits {
    use std::convert::Infallible;
    use std::future::pending;

    use ::http::Response;
    use tower::service_fn;

    use super::*;

    async fn never(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, Infallible> {
        pending().await
    }

    #[tokio::test(start_paused = true)]
    async fn a_timeout_is_deadline_exceeded_for_every_error_type() {
        let layer = unknown().attempt_timeout(ms(10)).build().unwrap();
        let start = Instant::now();
        let Ok(response) = layer.layer(service_fn(never)).oneshot(request(&[])).await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["grpc-status"], "4");
        assert_eq!(response.headers()["content-type"], "application/grpc");
        let message = "the attempt timed out after 10ms";
        assert_eq!(response.headers()["grpc-message"], message);
        // The method was not declared idempotent.
        assert_eq!(start.elapsed(), ms(10));
    }

    #[tokio::test(start_paused = true)]
    async fn idempotent_methods_are_retried_after_a_timeout() {
        let layer = grpc().attempt_timeout(ms(10)).build().unwrap();
        let start = Instant::now();
        let Ok(_) = layer.layer(service_fn(never)).oneshot(request(&[])).await;
        assert_eq!(start.elapsed(), ms(10 + 100 + 10 + 200 + 10));
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_comes_with_the_deadline_is_not_replaced() {
        let invalid = tower::service_fn(|_: Request<Full<Bytes>>| async {
            tokio::time::sleep(ms(50)).await;
            let response = Response::builder().header("grpc-status", "3");
            Ok::<_, Infallible>(response.body(Full::<Bytes>::default()).unwrap())
        });
        let service = grpc().deadline(ms(50)).build().unwrap().layer(invalid);
        let response = service.oneshot(request(&[])).await.unwrap();
        assert_eq!(response.headers()["grpc-status"], "3");
    }

    #[tokio::test(start_paused = true)]
    async fn the_timeout_of_the_call_only_shortens_the_layers_deadline() {
        let layer = grpc().deadline(ms(50)).build().unwrap();
        for (timeout, expected) in [("20m", 20), ("1S", 50), ("x", 50)] {
            let start = Instant::now();
            let request = request(&[("grpc-timeout", timeout)]);
            let Ok(_) = layer.layer(service_fn(never)).oneshot(request).await;
            assert_eq!(start.elapsed(), ms(expected));
        }
    }
}
