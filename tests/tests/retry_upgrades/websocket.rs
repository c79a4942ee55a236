//! A WebSocket handshake is a GET, but must not be resent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use axum::Router;
use axum::body::Body;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::WebSocket;
use axum::response::IntoResponse;
use axum::routing::any;
use futures_util::{SinkExt, StreamExt};
use http::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tests::clients::hyper;
use tests::{Events, soon};
use tokio::net::TcpListener;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tower::{Layer, ServiceExt};
use tower_jitter_retry::StopReason;

use crate::retry;

/// The example of RFC 6455, section 1.3: the key and the server's answer to it.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

/// Answers with `failures` 503s, then echoes WebSocket messages. The server has a retry layer, too.
async fn server(failures: usize, events: &Events) -> (String, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let handler = move |upgrade: WebSocketUpgrade| async move {
        match count.fetch_add(1, SeqCst) {
            n if n < failures => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            _ => upgrade.on_upgrade(echo),
        }
    };
    let router: Router = Router::new().route("/", any(handler)).layer(retry(events));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

fn handshake(url: &str) -> Request<Body> {
    Request::get(url)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", KEY)
        .body(Body::empty())
        .unwrap()
}

#[tokio::test]
async fn a_websocket_talks_through_the_layer_on_both_sides() {
    let (client_events, server_events) = (Events::default(), Events::default());
    let (url, requests) = server(0, &server_events).await;
    let client = retry(&client_events).layer(hyper(false));
    let mut response = soon(client.oneshot(handshake(&url))).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(response.headers()["sec-websocket-accept"], ACCEPT);

    let upgraded = soon(hyper::upgrade::on(&mut response)).await.unwrap();
    let io = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    for n in 0..10 {
        let message = Message::text(format!("message {n}"));
        socket.send(message.clone()).await.unwrap();
        let echoed = soon(socket.next()).await.unwrap().unwrap();
        assert_eq!(echoed, message);
    }
    socket.close(None).await.unwrap();

    assert_eq!(requests.load(SeqCst), 1);
    for events in [client_events, server_events] {
        assert_eq!(events.attempts(), 1);
        assert_eq!(events.stop(), StopReason::Success);
    }
}

#[tokio::test]
async fn a_handshake_that_fails_is_not_retried_on_either_side() {
    let (client_events, server_events) = (Events::default(), Events::default());
    let (url, requests) = server(1, &server_events).await;
    let client = retry(&client_events).layer(hyper(false));
    let response = soon(client.oneshot(handshake(&url))).await;
    assert_eq!(response.unwrap().status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(requests.load(SeqCst), 1);
    for events in [client_events, server_events] {
        assert_eq!(events.attempts(), 1);
        assert_eq!(events.stop(), StopReason::NotResendable);
    }
}
