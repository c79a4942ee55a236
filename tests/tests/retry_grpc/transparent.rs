//! Proof that the server did not process a call.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use tests::{Code, Events, Http2Server, Reply as Frame};
use tokio::net::TcpSocket;
use tower_jitter_retry::{DelaySource, StopReason};

use crate::words::{Reply, Words, channel};
use crate::{BACKOFF, client};

const IMMEDIATE: (Duration, DelaySource) = (Duration::ZERO, DelaySource::Unprocessed);
const DELAYED: (Duration, DelaySource) = (BACKOFF, DelaySource::Backoff);

#[tokio::test]
async fn attempts_that_the_server_did_not_see_are_not_counted() {
    let words = Words::new(|n| match n {
        1 => Reply::Early(tonic::Code::Unavailable, None),
        _ => Reply::Good,
    });
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let url = format!("http://{}", socket.local_addr().unwrap());
    // The first connection is refused, because the port does not listen yet.
    let (socket, server) = (Mutex::new(Some(socket)), words.clone());
    let events = Events::with_hook(move || {
        if let Some(socket) = socket.lock().unwrap().take() {
            server.serve(socket.listen(16).unwrap());
        }
    });
    let echo = client(&events, channel(url)).echo("hello").await;
    assert_eq!(echo.unwrap(), "hello");
    let twice = (BACKOFF * 2, DelaySource::Backoff);
    assert_eq!(events.delays(), [DELAYED, twice]);
    let before = words.field("grpc-previous-rpc-attempts");
    assert_eq!(before, [None, Some("1".into())]);
}

#[tokio::test]
async fn a_proof_of_http_2_counts_for_grpc() {
    for proof in [
        Frame::Reset(Code::RefusedStream),
        Frame::GoAwayBefore(Code::NoError),
    ] {
        let server = Http2Server::start(move |n| if n == 1 { proof } else { Frame::Ok }).await;
        let events = Events::default();
        let _ = client(&events, channel(server.url())).echo("hello").await;
        assert_eq!(events.delays(), [IMMEDIATE], "{proof:?}");
        assert_eq!(server.requests(), 2, "{proof:?}");
    }
}

/// gRPC over HTTP/2, section "Errors", maps the reset's code to the call's status.
#[tokio::test]
async fn other_resets_end_the_call() {
    for reset in [
        Code::Cancel,
        Code::InternalError,
        Code::NoError,
        Code::EnhanceYourCalm,
    ] {
        let server = Http2Server::start(move |_| Frame::Reset(reset)).await;
        let events = Events::default();
        let call = client(&events, channel(server.url())).echo("hello").await;
        call.unwrap_err();
        assert_eq!(events.stop(), StopReason::Fatal, "{reset:?}");
        assert_eq!(server.requests(), 1, "{reset:?}");
    }
}

/// gRPC maps a broken connection to UNAVAILABLE.
#[tokio::test]
async fn a_call_whose_connection_breaks_is_retried() {
    for fault in [Frame::Close, Frame::Abort, Frame::GoAwayAfter] {
        let server = Http2Server::start(move |n| if n == 1 { fault } else { Frame::Ok }).await;
        let events = Events::default();
        let _ = client(&events, channel(server.url())).echo("hello").await;
        assert_eq!(events.delays(), [DELAYED], "{fault:?}");
        assert_eq!(server.requests(), 2, "{fault:?}");
    }
}
