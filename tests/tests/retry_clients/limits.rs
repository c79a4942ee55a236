//! Servers that never answer.

use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::routing::any;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use tests::clients::{hyper, reqwest};
use tests::raw::hello;
use tests::{Events, Http2Server, RawServer, Reply, soon};
use tokio::net::TcpListener;
use tower::{BoxError, Layer, ServiceBuilder, ServiceExt};
use tower_jitter_retry::{Elapsed, Http, Observed, RetryLayer, StandardAnswer, StopReason};

use crate::builder;

const LIMIT: Duration = Duration::from_millis(500);

/// Holds the first connections open without an answer.
async fn silent(connections: usize) -> RawServer {
    RawServer::start(move |n, stream| async move {
        match n {
            n if n <= connections => {
                let _stream = stream;
                std::future::pending().await
            }
            _ => hello(stream).await,
        }
    })
    .await
}

fn layer(events: &Events) -> RetryLayer<Http, Observed, StandardAnswer> {
    let builder = builder(events).max_attempts(2);
    builder.attempt_timeout(LIMIT).build().unwrap()
}

/// The response that hyper-util's client returns from the second attempt.
async fn by_hyper(url: String, http2: bool) -> Bytes {
    let events = Events::default();
    let client = ServiceBuilder::new()
        .layer(layer(&events))
        .map_err(BoxError::from)
        .service(hyper(http2));
    let request = Request::get(url).body(Body::empty()).unwrap();
    let response = soon(client.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(events.attempts(), 2);
    response.collect().await.unwrap().to_bytes()
}

/// The response that reqwest returns from the second attempt.
async fn by_reqwest(url: String, http2: bool) -> Bytes {
    let events = Events::default();
    let request = reqwest(http2).get(url).build().unwrap();
    let client = layer(&events).layer(reqwest(http2));
    let response = soon(client.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(events.attempts(), 2);
    response.bytes().await.unwrap()
}

#[tokio::test]
async fn a_silent_connection_is_replaced_by_another() {
    let server = silent(1).await;
    assert_eq!(by_hyper(server.url(), false).await, "hello");
    assert_eq!(server.connections(), 2);
    let server = silent(1).await;
    assert_eq!(by_reqwest(server.url(), false).await, "hello");
    assert_eq!(server.connections(), 2);
}

/// A timeout is no evidence that the connection is broken.
#[tokio::test]
async fn a_silent_stream_is_replaced_by_another_on_its_connection() {
    let server =
        async || Http2Server::start(|n| if n == 1 { Reply::Never } else { Reply::Ok }).await;
    let one = server().await;
    by_hyper(one.url(), true).await;
    assert_eq!((one.requests(), one.connections()), (2, 1));
    let other = server().await;
    by_reqwest(other.url(), true).await;
    assert_eq!((other.requests(), other.connections()), (2, 1));
}

#[tokio::test]
async fn a_boxed_error_names_the_timeout() {
    for (method, attempts) in [(Method::POST, 1), (Method::GET, 2)] {
        let server = silent(usize::MAX).await;
        let events = Events::default();
        let client = ServiceBuilder::new()
            .layer(layer(&events))
            .map_err(BoxError::from)
            .service(hyper(false));
        let request = Request::builder().method(method).uri(server.url());
        let request = request.body(Body::from("hello")).unwrap();
        let error: BoxError = soon(client.oneshot(request)).await.unwrap_err();
        assert_eq!(error.downcast_ref(), Some(&Elapsed::Attempt(LIMIT)));
        assert_eq!(events.attempts(), attempts);
        assert_eq!(server.connections(), attempts);
    }
}

#[tokio::test]
async fn reqwest_returns_504_after_a_timeout() {
    for (method, attempts) in [(Method::POST, 1), (Method::GET, 2)] {
        let server = silent(usize::MAX).await;
        let events = Events::default();
        let client = layer(&events).layer(reqwest(false));
        let request = reqwest(false).request(method, server.url()).body("hello");
        let response = soon(client.oneshot(request.build().unwrap()))
            .await
            .unwrap();
        assert_eq!(response.status(), StatusCode::GATEWAY_TIMEOUT);
        assert_eq!(response.bytes().await.unwrap(), "");
        assert_eq!(events.attempts(), attempts);
        assert_eq!(server.connections(), attempts);
    }
}

#[tokio::test]
async fn a_router_returns_504_after_a_timeout() {
    let events = Events::default();
    let deadline = builder(&events).deadline(LIMIT).build().unwrap();
    let router: Router = Router::new()
        .route("/slow", any(std::future::pending::<()>))
        .route("/fast", any(|| async { "hello" }))
        .layer(deadline);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = reqwest(false);
    let slow = soon(client.get(format!("{url}slow")).send()).await.unwrap();
    assert_eq!(slow.status(), StatusCode::GATEWAY_TIMEOUT);
    assert_eq!(slow.text().await.unwrap(), "");
    assert_eq!(events.stop(), StopReason::DeadlineExceeded);
    let fast = soon(client.get(format!("{url}fast")).send()).await.unwrap();
    assert_eq!(fast.text().await.unwrap(), "hello");
}
