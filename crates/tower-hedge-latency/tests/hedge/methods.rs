//! Which methods are hedged over HTTP and gRPC.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::Full;
use tokio::time::sleep;
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{HedgeLayer, HedgeLayerBuilder, Http, Mode};

use crate::support::*;

fn http() -> HedgeLayerBuilder<Http> {
    fixed(10).http()
}

/// Returns the caller's status and the number of attempts. The first attempt succeeds after 50 ms. Every other attempt
/// answers 404 immediately.
async fn call(layer: HedgeLayerBuilder<Http>, request: http::request::Builder) -> (u16, usize) {
    let attempts = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&attempts);
    let server = service_fn(move |_: Request<Full<Bytes>>| {
        let is_first = count.fetch_add(1, Relaxed) == 0;
        async move {
            let mut response = Response::new(Full::<Bytes>::default());
            match is_first {
                true => sleep(ms(50)).await,
                false => *response.status_mut() = StatusCode::NOT_FOUND,
            }
            Ok::<_, Infallible>(response)
        }
    });
    let service = layer.build().unwrap().layer(server);
    let request = request.body(Full::default()).unwrap();
    let Ok(response) = service.oneshot(request).await;
    (response.status().as_u16(), attempts.load(Relaxed))
}

#[tokio::test(start_paused = true)]
async fn only_safe_methods_are_hedged() {
    for method in ["GET", "HEAD", "OPTIONS", "TRACE", "QUERY"] {
        let request = Request::builder().method(method);
        assert_eq!(call(http(), request).await, (404, 2), "{method}");
    }
    // The caller would receive 404 for its own success.
    for method in ["DELETE", "PUT", "POST", "PATCH"] {
        let request = Request::builder().method(method);
        assert_eq!(call(http(), request).await, (200, 1), "{method}");
    }
    let key = Request::post("/").header("idempotency-key", "1");
    assert_eq!(call(http(), key).await, (200, 1));
}

#[tokio::test(start_paused = true)]
async fn rules_narrow_and_widen_the_requests_that_are_hedged() {
    let layer = || {
        let layer = http().hedge_unsafe_if(|request| request.path().starts_with("/search"));
        layer.hedge_if(|request| request.authority() != Some("slow.example"))
    };
    for (request, attempts) in [
        (Request::get("http://a.example/page"), 2),
        (Request::get("http://slow.example/page"), 1),
        (Request::post("http://a.example/page"), 1),
        (Request::post("http://a.example/search"), 2),
        (Request::post("http://slow.example/search"), 1),
        (Request::delete("http://a.example/search/1"), 2),
    ] {
        let uri = request.uri_ref().cloned();
        assert_eq!(call(layer(), request).await.1, attempts, "{uri:?}");
    }
}

#[cfg(feature = "grpc")]
#[test]
fn grpc_without_idempotent_methods_is_an_error() {
    let expected = "idempotent_methods is [], but must be the full name of at least one method, unless `idempotent_if` is set";
    let error = HedgeLayer::builder().grpc().build().unwrap_err();
    assert_eq!(error.to_string(), expected);
    let expected = "idempotent_methods is [], but must be the full name of at least one method";
    let error = HedgeLayer::grpc([""; 0]).unwrap_err();
    assert_eq!(error.to_string(), expected);
    let all = HedgeLayer::builder().grpc().idempotent_if(|_| true);
    assert!(all.build().is_ok());
}

#[tokio::test(start_paused = true)]
async fn shadow_and_off_do_not_change_requests() {
    for (mode, has_key) in [(Mode::On, true), (Mode::Shadow, false), (Mode::Off, false)] {
        let layer = http()
            .mode(mode)
            .generate_idempotency_key(|| HeaderValue::from_static("key"));
        let service = layer.build().unwrap().layer(service_fn(async |request| {
            let request: Request<Full<Bytes>> = request;
            let has_key = request.headers().contains_key("idempotency-key");
            Ok::<_, Infallible>(Response::new(has_key))
        }));
        let post = Request::post("/").body(Full::default()).unwrap();
        let Ok(response) = service.oneshot(post).await;
        assert_eq!(*response.body(), has_key, "{mode:?}");
    }
}
