//! Real clients against real servers.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

mod greeter;
mod overrides;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::routing::any;
use bytes::Bytes;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{Layer, ServiceBuilder, ServiceExt};
use tower_hedge_latency::{HedgeLayer, Http};
use tower_jitter_retry::{Backoff, RetryLayer};

fn retry() -> RetryLayer<Http> {
    let backoff = Backoff::constant(Duration::from_millis(1));
    let builder = RetryLayer::builder().backoff(backoff);
    builder.http().build().unwrap()
}

/// Also hedges PUT, because these tests are about bodies.
fn hedge() -> HedgeLayer<Http> {
    let builder = HedgeLayer::builder().fixed(Duration::from_millis(20));
    let builder = builder
        .http()
        .hedge_unsafe_if(|request| request.method() == "PUT");
    builder.build().unwrap()
}

/// A server on a free port, which runs until the test's runtime ends.
struct Server {
    url: String,
    requests: Arc<AtomicUsize>,
}

impl Server {
    /// Answers the 1-based n-th request with the status `answer(n)` and the request's own body; `None` means no answer.
    async fn start(answer: fn(usize) -> Option<u16>) -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&requests);
        let handler = move |request: Request<Body>| async move {
            let answer = answer(count.fetch_add(1, SeqCst) + 1);
            let body = request.into_body().collect().await.unwrap().to_bytes();
            match answer {
                Some(status) => (StatusCode::from_u16(status).unwrap(), body),
                None => std::future::pending().await,
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router: Router = Router::new().route("/", any(handler));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, requests }
    }

    fn requests(&self) -> usize {
        self.requests.load(SeqCst)
    }
}

fn reqwest_client() -> reqwest::Client {
    reqwest::Client::builder().no_proxy().build().unwrap()
}

#[tokio::test]
async fn reqwest_is_retried_with_its_body() {
    let server = Server::start(|n| Some(if n == 1 { 503 } else { 200 })).await;
    let client = reqwest_client();
    let request = client.put(&server.url).body("hello").build().unwrap();
    let stack = retry().layer(hedge().layer(client));
    let response = stack.oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.text().await.unwrap(), "hello");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn reqwest_is_hedged() {
    let server = Server::start(|n| (n > 1).then_some(200)).await;
    let client = reqwest_client();
    let request = client.put(&server.url).body("hello").build().unwrap();
    let response = retry().layer(hedge().layer(client)).oneshot(request).await;
    assert_eq!(response.unwrap().text().await.unwrap(), "hello");
    assert_eq!(server.requests(), 2);
}

#[tokio::test]
async fn streaming_bodies_of_reqwest_are_resent_whole() {
    let server = Server::start(|n| Some(if n == 1 { 503 } else { 200 })).await;
    let client = reqwest_client();
    let stream = reqwest::Body::wrap(streaming(20));
    let request = client.put(&server.url).body(stream).build().unwrap();
    let response = retry().layer(client).oneshot(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    assert_eq!(response.bytes().await.unwrap(), content(20));
    assert_eq!(server.requests(), 2);
}

/// Frames of 1 KB that arrive one by one.
fn streaming(frames: u8) -> impl HttpBody<Data = Bytes, Error = std::io::Error> {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for n in 0..frames {
            let frame = Frame::data(Bytes::from(vec![n; 1024]));
            let _ = sender.send(Ok::<_, std::io::Error>(frame)).await;
        }
    });
    StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver))
}

fn content(frames: u8) -> Vec<u8> {
    (0..frames).flat_map(|n| vec![n; 1024]).collect()
}

#[tokio::test]
async fn hyper_over_http_1_and_2_is_retried_and_hedged_with_its_body() {
    for http2 in [false, true] {
        let client = || -> Client<_, Full<Bytes>> {
            let mut builder = Client::builder(TokioExecutor::new());
            builder.http2_only(http2).build_http()
        };
        let failing = Server::start(|n| Some(if n < 3 { 502 } else { 200 })).await;
        let request = Request::put(&failing.url).body(Full::from("hello"));
        let response = retry().layer(client()).oneshot(request.unwrap()).await;
        let body = response.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hello");
        assert_eq!(failing.requests(), 3);

        let stalling = Server::start(|n| (n > 1).then_some(200)).await;
        let request = Request::put(&stalling.url).body(Full::from("hello"));
        let response = hedge().layer(client()).oneshot(request.unwrap()).await;
        let body = response.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), "hello");
        assert_eq!(stalling.requests(), 2);
    }
}

#[tokio::test]
async fn streaming_bodies_of_axum_are_resent_and_hedged_whole() {
    for layers in ["retry", "hedge"] {
        let server = match layers {
            "retry" => Server::start(|n| Some(if n == 1 { 503 } else { 200 })).await,
            _ => Server::start(|n| (n > 1).then_some(200)).await,
        };
        let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
        let request = Request::put(&server.url).body(Body::new(streaming(20)));
        let request = request.unwrap();
        let response = match layers {
            "retry" => retry().layer(client).oneshot(request).await,
            _ => hedge().layer(client).oneshot(request).await,
        };
        let body = response.unwrap().into_body().collect().await.unwrap();
        assert_eq!(body.to_bytes(), content(20), "{layers}");
        assert_eq!(server.requests(), 2, "{layers}");
    }
}

#[tokio::test]
async fn a_stream_above_the_limit_is_sent_once_and_whole() {
    let server = Server::start(|_| Some(503)).await;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::put(&server.url).body(Body::new(streaming(20)));
    let layer = RetryLayer::builder().http().replay_limit(10_000);
    let layer = layer.build().unwrap();
    let response = layer.layer(client).oneshot(request.unwrap()).await;
    let body = response.unwrap().into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), content(20));
    assert_eq!(server.requests(), 1);
}

/// A stream of known size is still not a body in memory.
#[tokio::test]
async fn a_request_that_is_forwarded_with_its_length_arrives_whole() {
    let upstream = Server::start(|_| Some(200)).await;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let forward = retry().layer(client);
    let url: http::Uri = upstream.url.parse().unwrap();
    let proxy = any(move |mut request: Request<Body>| async move {
        *request.uri_mut() = url;
        forward.oneshot(request).await.unwrap().map(Body::new)
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router: Router = Router::new().route("/", proxy);
    tokio::spawn(async move { axum::serve(listener, router).await });

    for length in [0, 5, 1_000_000] {
        let body = vec![7; length];
        let request = reqwest_client().put(&url).body(body.clone());
        let response = request.send().await.unwrap();
        assert_eq!(response.bytes().await.unwrap(), body);
    }
    assert_eq!(upstream.requests(), 3);
}

#[tokio::test]
async fn a_router_with_both_layers_answers() {
    let router: Router = Router::new()
        .route("/", any(|body: Bytes| async move { body }))
        .layer(ServiceBuilder::new().layer(retry()).layer(hedge()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    let request = reqwest_client().put(url).body("hello");
    let response = request.send().await.unwrap();
    assert_eq!(response.text().await.unwrap(), "hello");
}

#[tokio::test]
async fn tonic_calls_through_both_layers_on_both_sides() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(AtomicUsize::new(0));
    let greeter = greeter::Greeter::new(Arc::clone(&requests));
    tokio::spawn(
        tonic::transport::Server::builder()
            .layer(retry())
            .layer(hedge())
            .add_service(greeter)
            .serve_with_incoming(tokio_stream::wrappers::TcpListenerStream::new(listener)),
    );

    let channel = tonic::transport::Endpoint::from_shared(url).unwrap();
    let channel = channel.connect().await.unwrap();
    let stack = retry().layer(hedge().layer(channel));
    let greeting = greeter::greet(stack.clone(), "ada").await.unwrap();
    assert_eq!(greeting, "hello, ada");
    // A rejection passes through unchanged.
    let status = greeter::greet(stack, "").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::InvalidArgument);
    assert_eq!(requests.load(SeqCst), 2);
}
