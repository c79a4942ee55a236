//! An HTTP client, and servers behind the gateway.

use std::net::SocketAddr;

use axum::Router;
use axum::http::request::Builder;
use axum::http::{HeaderMap, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use hyper_util::rt::TokioExecutor;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) type HttpClient = Client<HttpConnector, Full<Bytes>>;

pub(crate) fn client() -> HttpClient {
    Client::builder(TokioExecutor::new()).build_http()
}

pub(crate) async fn send(request: Builder, body: impl Into<Bytes>) -> Response<Incoming> {
    let request = request.body(Full::new(body.into())).unwrap();
    client().request(request).await.unwrap()
}

pub(crate) async fn get(url: String) -> Response<Incoming> {
    send(Request::get(url), "").await
}

pub(crate) async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().into()).unwrap()
}

pub(crate) fn header<'a>(headers: &'a HeaderMap, name: &str) -> &'a str {
    headers
        .get(name)
        .map_or("", |value| value.to_str().unwrap())
}

/// Asserts that the response is the gateway's own, with this status and reason.
pub(crate) async fn assert_problem(response: Response<Incoming>, status: StatusCode, reason: &str) {
    assert_eq!(response.status(), status);
    assert_eq!(
        header(response.headers(), "content-type"),
        "application/problem+json"
    );
    let problem: serde_json::Value = serde_json::from_str(&text(response).await).unwrap();
    assert_eq!(problem["status"], status.as_u16());
    assert!(
        problem["detail"].as_str().unwrap().contains(reason),
        "{problem}"
    );
}

/// Sends these bytes, and returns the server's answer until it closes the connection.
pub(crate) async fn raw(addr: SocketAddr, request: &str) -> String {
    let mut socket = TcpStream::connect(addr).await.unwrap();
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    answer
}

/// Serves `app` on a free port while the test runs.
pub(crate) async fn serve(app: Router) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    tokio::spawn(axum::serve(listener, app).into_future());
    addr
}
