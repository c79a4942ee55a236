//! Time limits of HTTP calls.

use ::http::{Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::Full;
use tower_jitter_retry::{Deadline, RetryInfo, RetryLayerBuilder, RetryOverride};

use super::*;

type Body = Full<Bytes>;

fn layer() -> RetryLayerBuilder<tower_jitter_retry::Http> {
    let backoff = Backoff::constant(ms(5)).jitter(tower_jitter_retry::Jitter::None);
    RetryLayer::builder().backoff(backoff).http()
}

/// Sends a request to a server that never answers. Returns the response and the duration of the call.
async fn ask<S>(service: S, request: Request<Body>) -> (Response<Body>, Duration)
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
{
    let start = Instant::now();
    let Ok(response) = service.oneshot(request).await;
    (response, start.elapsed())
}

async fn never(_: Request<Body>) -> Result<Response<Body>, Infallible> {
    pending().await
}

fn get() -> ::http::request::Builder {
    Request::get("/")
}

#[tokio::test(start_paused = true)]
async fn a_timeout_of_an_infallible_service_is_a_504() {
    let service = layer().attempt_timeout(ms(10)).build().unwrap();
    let service = service.layer(service_fn(never));
    let request = get().body(Body::default()).unwrap();
    let (response, time) = ask(service, request).await;
    assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
    let info: &RetryInfo = response.extensions().get().unwrap();
    assert_eq!(
        (info.attempts, info.stop),
        (3, StopReason::AttemptsExhausted)
    );
    assert_eq!(time, ms(3 * 10 + 2 * 5));
}

#[tokio::test(start_paused = true)]
async fn a_post_that_timed_out_is_not_retried() {
    let service = layer().attempt_timeout(ms(10)).build().unwrap();
    let service = service.layer(service_fn(never));
    let post = || Request::post("/");
    let request = post().body(Body::default()).unwrap();
    let (response, time) = ask(service.clone(), request).await;
    assert_eq!(
        (response.status(), time),
        (StatusCode::GATEWAY_TIMEOUT, ms(10))
    );
    // A POST with a key is idempotent.
    let request = post()
        .header("idempotency-key", "1")
        .body(Body::default())
        .unwrap();
    assert_eq!(ask(service, request).await.1, ms(40));
}

#[tokio::test(start_paused = true)]
async fn the_limits_of_a_request_replace_the_layers_limits() {
    let service = layer()
        .attempt_timeout(ms(10))
        .deadline(ms(100))
        .build()
        .unwrap();
    let service = service.layer(service_fn(never));
    let own = |extend: fn(::http::request::Builder) -> ::http::request::Builder| {
        let request = extend(get()).body(Body::default()).unwrap();
        ask(service.clone(), request)
    };
    for (answer, expected) in [
        (own(|get| get).await, 40),
        (
            own(|get| get.extension(RetryOverride::new().attempt_timeout(ms(20)))).await,
            70,
        ),
        (
            own(|get| get.extension(RetryOverride::new().attempt_timeout(ms(60)))).await,
            100,
        ),
        (
            own(|get| get.extension(RetryOverride::new().attempt_timeout(Duration::MAX))).await,
            100,
        ),
        (
            own(|get| get.extension(RetryOverride::new().deadline(Deadline::after(ms(25))))).await,
            25,
        ),
        (
            own(|get| {
                get.extension(
                    RetryOverride::new()
                        .attempt_timeout(ms(60))
                        .deadline(Deadline::NEVER),
                )
            })
            .await,
            190,
        ),
    ] {
        let (response, time) = answer;
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(time, ms(expected));
    }
}
