//! Answers of every kind, over HTTP/1.

use std::time::Duration;

use axum::body::Body;
use bytes::Bytes;
use http::{Method, Request, StatusCode};
use http_body_util::BodyExt;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tests::raw::read_head;
use tests::{RawServer, soon};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt};
use tower_hedge_latency::{Hedge, HedgeInfo, HedgeLayer, Http};

const TRIGGER: Duration = Duration::from_millis(40);

fn service(trigger: Duration) -> Hedge<Client<HttpConnector, Body>, Http> {
    let layer = HedgeLayer::builder().fixed(trigger).http();
    let client = Client::builder(TokioExecutor::new()).build_http();
    layer.build().unwrap().layer(client)
}

/// Says `first` at once on the first connection and then nothing, and all of `second` on the others.
async fn server<const N: usize>(first: &'static str, second: [&'static str; N]) -> RawServer {
    RawServer::start(move |n, mut stream| async move {
        read_head(&mut stream).await?;
        if n == 1 {
            stream.write_all(first.as_bytes()).await?;
            sleep(Duration::from_secs(60)).await;
        }
        for part in second {
            stream.write_all(part.as_bytes()).await?;
            sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    })
    .await
}

fn request(method: Method, server: &RawServer) -> Request<Body> {
    let request = Request::builder().method(method).uri(server.url());
    request.body(Body::empty()).unwrap()
}

async fn call(method: Method, server: &RawServer) -> http::Response<hyper::body::Incoming> {
    let call = service(TRIGGER).oneshot(request(method, server));
    soon(call).await.unwrap()
}

/// 103 is no answer yet.
#[tokio::test]
async fn an_informational_answer_does_not_win() {
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let server = server(hints, [hints, answer]).await;
    let response = call(Method::GET, &server).await;
    assert_eq!(response.status(), StatusCode::OK);
    let info: HedgeInfo = *response.extensions().get().unwrap();
    assert_eq!(info.winner().unwrap().number(), 2);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello");
}

#[tokio::test]
async fn an_answer_to_head_wins_without_its_body() {
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n";
    let server = server("", [answer]).await;
    let response = call(Method::HEAD, &server).await;
    assert!(response.extensions().get::<HedgeInfo>().is_some());
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), Bytes::new());
}

/// Latency is judged at the head: what comes of the winner afterwards takes as long as it takes.
#[tokio::test]
async fn an_answer_that_streams_goes_on_after_the_race() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = "5\r\nhello\r\n";
    let server = server(
        "",
        [head, chunk, chunk, chunk, chunk, chunk, chunk, "0\r\n\r\n"],
    )
    .await;
    let start = Instant::now();
    let response = call(Method::GET, &server).await;
    assert!(start.elapsed() >= TRIGGER);
    let body = response.into_body().collect().await.unwrap();
    assert_eq!(body.to_bytes(), "hello".repeat(6));
    assert_eq!(server.connections(), 2, "nothing is hedged after the head");
}

/// A head that comes in time and a body that does not: that is a matter for whoever reads it.
#[tokio::test]
async fn a_body_that_stalls_is_not_hedged() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel";
    let server = server(head, []).await;
    // Late enough for a head that comes at once, on any machine.
    let trigger = Duration::from_secs(1);
    let call = service(trigger).oneshot(request(Method::GET, &server));
    let body = soon(call).await.unwrap().into_body().collect();
    assert!(tokio::time::timeout(2 * trigger, body).await.is_err());
    assert_eq!(server.connections(), 1);
}
