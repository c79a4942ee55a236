//! Rate limits at unusual places in a stack.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep};
use tower::buffer::BufferLayer;
use tower::limit::ConcurrencyLimitLayer;
use tower::util::{BoxCloneSyncService, MapRequestLayer};
use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{MissingKey, Policy, RateLimitLayer, key};
use tower_jitter_retry::RetryLayer;

use crate::{few, layer};

type Answer = Response<Full<Bytes>>;

/// Takes 100 ms for each request, and counts requests.
fn slow(
    calls: &Arc<AtomicUsize>,
) -> impl Service<Request<Full<Bytes>>, Response = Answer, Error = Infallible, Future: Send + 'static>
+ Clone
+ Send
+ Sync
+ 'static {
    let calls = Arc::clone(calls);
    service_fn(move |_: Request<Full<Bytes>>| {
        calls.fetch_add(1, SeqCst);
        async {
            sleep(Duration::from_millis(100)).await;
            Ok(Answer::default())
        }
    })
}

fn request() -> Request<Full<Bytes>> {
    Request::new(Full::default())
}

#[tokio::test(start_paused = true)]
async fn above_a_buffer_a_rejection_takes_no_place_in_it_and_below_one_it_does_not_wait() {
    let calls = Arc::default();
    let above = ServiceBuilder::new()
        .layer(layer(Policy::new("all", few(2))))
        .layer(BufferLayer::new(1))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(slow(&calls));
    let below = ServiceBuilder::new()
        .layer(BufferLayer::new(8))
        .layer(layer(Policy::new("all", few(2))))
        .layer(ConcurrencyLimitLayer::new(1))
        .service(slow(&calls));
    let above = BoxCloneSyncService::new(above);
    let below = BoxCloneSyncService::new(below);
    for (service, takes) in [(above, 0), (below, 200)] {
        calls.store(0, SeqCst);
        let first: Vec<_> = (0..2)
            .map(|_| tokio::spawn(service.clone().oneshot(request())))
            .collect();
        // Both requests are in flight.
        sleep(Duration::from_millis(1)).await;
        let started = Instant::now();
        let rejected = service.oneshot(request()).await.unwrap();
        assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
        assert!(started.elapsed() <= Duration::from_millis(takes));
        for call in first {
            let response = call.await.unwrap().unwrap();
            assert_eq!(response.status(), StatusCode::OK);
        }
        assert_eq!(calls.load(SeqCst), 2);
    }
}

/// Inside a retry layer each attempt counts, and a rejected attempt waits for its `Retry-After`.
#[tokio::test(start_paused = true)]
async fn inside_of_a_retry_every_attempt_is_a_request() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let flaky = service_fn(move |_: Request<Full<Bytes>>| {
        let mut response = Answer::default();
        if counted.fetch_add(1, SeqCst) == 0 {
            *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        async { Ok::<_, Infallible>(response) }
    });
    let service = ServiceBuilder::new()
        .layer(RetryLayer::http())
        .layer(layer(Policy::new("all", few(1))))
        .service(flaky);
    let started = Instant::now();
    let response = service.oneshot(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(calls.load(SeqCst), 2);
    assert!(
        started.elapsed() >= Duration::from_secs(60),
        "a token's time"
    );
}

/// An extension that a layer above sets can be a key; an extension that a layer below sets cannot.
#[tokio::test(start_paused = true)]
async fn a_key_from_an_extension_needs_its_layer_above() {
    #[derive(Clone)]
    struct User(u64);

    let find = || {
        MapRequestLayer::new(|mut request: Request<Full<Bytes>>| {
            let user = request.headers().get("user").map_or(0, |_| 1);
            request.extensions_mut().insert(User(user));
            request
        })
    };
    let limit = || {
        let policy = Policy::new("user", few(1)).by(key::extension(|user: &User| user.0));
        layer(policy.missing_key(MissingKey::Reject))
    };
    let calls = Arc::default();
    let above = ServiceBuilder::new().layer(find()).layer(limit());
    let mut above = above.service(slow(&calls));
    let response = above.ready().await.unwrap().call(request()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let mut other = request();
    other.headers_mut().insert("user", "1".parse().unwrap());
    let response = above.ready().await.unwrap().call(other).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);

    let below = ServiceBuilder::new().layer(limit()).layer(find());
    let response = below
        .service(slow(&calls))
        .oneshot(request())
        .await
        .unwrap();
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
}

/// `route_layer` does not count requests without a route; `layer` counts them. Both count all routes and methods together,
/// though axum calls the layer for each of them.
#[tokio::test(start_paused = true)]
async fn a_router_counts_in_one_place_wherever_the_layer_is() {
    let routes = || {
        let hello = async || "hello";
        Router::new()
            .route("/a", get(hello).post(hello))
            .nest("/b", Router::new().route("/c", get(hello)))
    };
    let all = || layer(Policy::new("all", few(3)));
    let status = async |router: &Router, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.body(Body::empty()).unwrap();
        router
            .clone()
            .oneshot(request)
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    for (router, lost) in [
        (routes().layer(all()), 429),
        (routes().route_layer(all()), 404),
    ] {
        assert_eq!(status(&router, "GET", "/a").await, 200);
        assert_eq!(status(&router, "POST", "/a").await, 200);
        assert_eq!(status(&router, "GET", "/b/c").await, 200);
        assert_eq!(status(&router, "GET", "/a").await, 429);
        assert_eq!(status(&router, "GET", "/nowhere").await, lost);
    }
    // By route: each route has its own limit, and requests without a route share one.
    let by_route = Policy::new("route", few(1)).by(key::matched_path());
    let layer = RateLimitLayer::builder(Memory::default()).limit(by_route);
    let router: Router = routes().layer(layer.build().unwrap());
    for (path, first) in [("/a", 200), ("/b/c", 200), ("/nowhere", 404)] {
        assert_eq!(status(&router, "GET", path).await, first, "{path}");
        assert_eq!(status(&router, "GET", path).await, 429, "{path}");
    }
    assert_eq!(status(&router, "GET", "/elsewhere").await, 429);
}
