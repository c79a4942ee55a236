//! Every kind of response, over HTTP/1.

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

/// On the first connection, sends `first` immediately and then stalls. On the others, sends all of `second`.
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

/// A 103 is an interim response.
#[tokio::test]
async fn an_informational_answer_does_not_win() {
    let hints = "HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n";
    let answer = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello";
    let server = server(hints, [hints, answer]).await;
    let response = call(Method::GET, &server).await;
    assert_eq!(response.status(), StatusCode::OK);
    let info: HedgeInfo = *response.extensions().get().unwrap();
    assert_eq!(info.winner.unwrap().number(), 2);
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

/// The latency of an attempt ends with the response's head; the winner's body may take longer.
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

/// The head arrives in time and the body stalls: the body's reader has to handle that.
#[tokio::test]
async fn a_body_that_stalls_is_not_hedged() {
    let head = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel";
    let server = server(head, []).await;
    // Later than any immediate response on a busy machine.
    let trigger = Duration::from_secs(1);
    let call = service(trigger).oneshot(request(Method::GET, &server));
    let body = soon(call).await.unwrap().into_body().collect();
    assert!(tokio::time::timeout(2 * trigger, body).await.is_err());
    assert_eq!(server.connections(), 1);
}
