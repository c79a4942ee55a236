//! A client that retries, on the other side of a limit.

use std::convert::Infallible;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode};
use tokio::time::Instant;
use tower::{Layer, ServiceExt, service_fn};
use tower_dist_ratelimit::{Policy, Quota};
use tower_jitter_retry::RetryLayer;

use crate::{client, layer, serve};

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_it_is_told() {
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let quota = Quota::new(1, Duration::from_secs(7));
    let limited = layer(Policy::new("all", quota)).layer(inner);
    let retrying = RetryLayer::http().layer(limited.clone());
    let get = || Request::new(Full::default());
    limited.oneshot(get()).await.unwrap();
    let started = Instant::now();
    let response = retrying.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // 7 s, and up to a tenth of jitter above.
    let waited = started.elapsed();
    assert!((7_000..=7_700).contains(&waited.as_millis()), "{waited:?}");
}

#[tokio::test]
async fn a_retry_over_sockets_waits_as_long_as_it_is_told() {
    let router: Router = Router::new().route("/", get(async || "hello"));
    let url = serve(router.layer(layer(Policy::new("all", Quota::per_second(1))))).await;
    let service = RetryLayer::http().layer(client());
    let request = || client().get(&url).build().unwrap();
    let started = Instant::now();
    for _ in 0..2 {
        let response = service.clone().oneshot(request()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    assert!(started.elapsed() >= Duration::from_secs(1));
}
