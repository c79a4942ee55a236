//! Nested retry layers do not multiply their attempts.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod table;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use http::{Request, StatusCode};
use tests::clients::{hyper, reqwest};
use tests::raw::{close, read_head};
use tests::{RawServer, soon};
use tokio::net::TcpListener;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::{Backoff, Http, RetryLayer};

/// A layer with three attempts.
fn retry() -> RetryLayer<Http> {
    let builder = RetryLayer::builder().http().backoff(Backoff::none());
    builder.build().unwrap()
}

fn hedge(after: Duration) -> HedgeLayer<Http> {
    HedgeLayer::builder().fixed(after).http().build().unwrap()
}

/// Answers 503, and counts requests.
async fn unavailable() -> (String, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let router: Router = Router::new().fallback(move || async move {
        count.fetch_add(1, SeqCst);
        StatusCode::SERVICE_UNAVAILABLE
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

/// Reads a request, and closes the connection without an answer.
async fn dropping() -> RawServer {
    RawServer::start(|_, mut stream| async move {
        read_head(&mut stream).await?;
        close(stream).await
    })
    .await
}

/// The number of requests that reach a server with 503s, and a server that drops connections.
async fn requests<S, B>(stack: S) -> (usize, usize)
where
    S: Service<Request<Body>, Response = http::Response<B>, Error: Into<BoxError>> + Clone,
{
    let (url, refused) = unavailable().await;
    let request = Request::get(url).body(Body::empty()).unwrap();
    let response = soon(stack.clone().oneshot(request)).await;
    let response = response.map_err(Into::into).unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);

    let dropping = dropping().await;
    let request = Request::get(dropping.url()).body(Body::empty()).unwrap();
    assert!(soon(stack.oneshot(request)).await.is_err());
    (refused.load(SeqCst), dropping.connections())
}

/// A response carries a mark when its retries are exhausted. For errors, each layer counts the retries of the layers
/// below.
#[tokio::test]
async fn two_layers_send_three_requests() {
    let stack = retry().layer(retry().layer(hyper(false)));
    assert_eq!(requests(stack).await, (3, 3));
    let one = retry().layer(hyper(false));
    assert_eq!(requests(one).await, (3, 3));
}

#[tokio::test]
async fn three_layers_send_three_requests() {
    let stack = retry().layer(retry().layer(retry().layer(hyper(false))));
    assert_eq!(requests(stack).await, (3, 3));
}

#[tokio::test]
async fn layers_with_a_hedge_between_do_not_multiply_either() {
    let hedge = hedge(Duration::from_secs(60));
    let stack = retry().layer(hedge.layer(retry().layer(hyper(false))));
    assert_eq!(requests(stack).await, (3, 3));
}

/// The layer below retries each of the two concurrent attempts; the layer above does not retry the pair.
#[tokio::test]
async fn a_race_between_two_layers_is_run_once() {
    let hedge = HedgeLayer::builder().fan_out(2).http().build().unwrap();
    let stack = retry().layer(hedge.layer(retry().layer(hyper(false))));
    assert_eq!(requests(stack).await, (2 * 3, 2 * 3));
}

/// reqwest's requests have private extensions; the layers work without a mark.
#[tokio::test]
async fn two_layers_over_reqwest_send_three_requests() {
    let client = reqwest(false);
    let stack = retry().layer(retry().layer(client.clone()));
    let (url, refused) = unavailable().await;
    let request = client.get(url).build().unwrap();
    let response = soon(stack.clone().oneshot(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(refused.load(SeqCst), 3);

    let dropping = dropping().await;
    let request = client.get(dropping.url()).build().unwrap();
    assert!(soon(stack.oneshot(request)).await.is_err());
    assert_eq!(dropping.connections(), 3);
}
