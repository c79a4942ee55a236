//! Tunnels through a proxy.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::body::Body;
use http::{Method, Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::raw::hello;
use tests::{Events, RawServer, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::TcpStream;
use tower::{Layer, ServiceExt};
use tower_jitter_retry::StopReason;

use crate::retry;

/// Answers with `failures` 429s, then opens tunnels.
async fn proxy(failures: usize) -> (RawServer, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let serve = move |_, stream: TcpStream| {
        let count = Arc::clone(&count);
        async move {
            let tunnel = service_fn(|request| {
                let is_open = count.fetch_add(1, SeqCst) >= failures;
                async move { Ok::<_, Infallible>(tunnel(request, is_open)) }
            });
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), tunnel);
            connection
                .with_upgrades()
                .await
                .map_err(std::io::Error::other)
        }
    };
    (RawServer::start(serve).await, requests)
}

fn tunnel(request: Request<Incoming>, is_open: bool) -> Response<Body> {
    assert_eq!(request.method(), Method::CONNECT);
    let mut response = Response::new(Body::empty());
    if !is_open {
        *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
        return response;
    }
    tokio::spawn(async move {
        let mut target = TcpStream::connect(request.uri().to_string()).await.unwrap();
        let upgraded = hyper::upgrade::on(request).await.unwrap();
        let _ = copy_bidirectional(&mut TokioIo::new(upgraded), &mut target).await;
    });
    response
}

/// A client that sends every request to the proxy.
fn client(proxy: SocketAddr) -> Client<impl Connect + Clone + Send + Sync + 'static, Body> {
    let connector = tower::service_fn(move |_: Uri| {
        Box::pin(async move { TcpStream::connect(proxy).await.map(TokioIo::new) })
    });
    Client::builder(TokioExecutor::new()).build(connector)
}

fn connect(target: SocketAddr) -> Request<Body> {
    let request = Request::connect(target.to_string());
    request.body(Body::empty()).unwrap()
}

#[tokio::test]
async fn a_tunnel_opens_through_the_layer() {
    let target = RawServer::start(|_, stream| hello(stream)).await;
    let (proxy, requests) = proxy(0).await;
    let events = Events::default();
    let client = retry(&events).layer(client(proxy.addr()));
    let mut response = soon(client.oneshot(connect(target.addr()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);

    let upgraded = soon(hyper::upgrade::on(&mut response)).await.unwrap();
    let mut tunnel = TokioIo::new(upgraded);
    let request = b"GET / HTTP/1.1\r\nhost: target\r\nconnection: close\r\n\r\n";
    tunnel.write_all(request).await.unwrap();
    let mut answer = String::new();
    soon(tunnel.read_to_string(&mut answer)).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.ends_with("hello"), "{answer}");
    assert_eq!(requests.load(SeqCst), 1);
    assert_eq!(events.attempts(), 1);
}

/// Every other method is retried after a 429.
#[tokio::test]
async fn a_tunnel_that_fails_to_open_is_not_asked_for_again() {
    let target = RawServer::start(|_, stream| hello(stream)).await;
    let (proxy, requests) = proxy(1).await;
    let events = Events::default();
    let client = retry(&events).layer(client(proxy.addr()));
    let response = soon(client.oneshot(connect(target.addr()))).await.unwrap();
    assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(requests.load(SeqCst), 1);
    assert_eq!(events.attempts(), 1);
    assert_eq!(events.stop(), StopReason::NotResendable);
    assert_eq!(target.connections(), 0);
}
