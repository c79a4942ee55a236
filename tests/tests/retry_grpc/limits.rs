//! Time limits, and a retry layer in the server.

use std::time::Duration;

use tests::Events;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::Code;
use tonic::transport::Server;
use tower::Layer;
use tower_jitter_retry::{RetryLayer, StopReason};

use crate::builder;
use crate::words::{Client, ECHO, Reply, Words, channel};

fn stalling(n: usize) -> Reply {
    match n {
        1 => Reply::Never,
        _ => Reply::Good,
    }
}

const LIMIT: Duration = Duration::from_millis(700);

#[tokio::test]
async fn a_timeout_is_deadline_exceeded_to_the_client() {
    let (words, channel) = Words::start(stalling).await;
    let events = Events::default();
    let layer = builder(&events).attempt_timeout(LIMIT).build().unwrap();
    let mut client = Client::new(layer.layer(channel));
    let status = client.echo("hello").await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "the attempt timed out after 700ms");
    // The server may have processed the call.
    assert_eq!(words.calls(), 1);
    assert_eq!(events.stop(), StopReason::Fatal);
}

#[tokio::test]
async fn a_timeout_of_an_idempotent_method_is_retried() {
    let (words, channel) = Words::start(stalling).await;
    let events = Events::default();
    let builder = builder(&events).idempotent_methods([ECHO]);
    let layer = builder.attempt_timeout(LIMIT).build().unwrap();
    let mut client = Client::new(layer.layer(channel));
    assert_eq!(client.echo("hello").await.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
}

#[tokio::test]
async fn the_end_of_a_call_is_deadline_exceeded_to_the_client() {
    let (words, channel) = Words::start(|_| Reply::Never).await;
    let events = Events::default();
    let builder = builder(&events).idempotent_methods([ECHO]);
    let layer = builder.deadline(LIMIT).build().unwrap();
    let mut client = Client::new(layer.layer(channel));
    let status = client.echo("hello").await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "the call timed out after 700ms");
    assert_eq!(words.calls(), 1);
    assert_eq!(events.stop(), StopReason::DeadlineExceeded);
}

#[tokio::test]
async fn a_server_retries_its_own_failed_service() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let words = Words::new(|n| match n {
        1 => Reply::Early(Code::Unavailable, None),
        2 => Reply::Good,
        _ => Reply::Never,
    });
    let layer = RetryLayer::builder().grpc().idempotent_methods([ECHO]);
    let layer = layer.deadline(LIMIT);
    let server = Server::builder()
        .layer(layer.build().unwrap())
        .add_service(words.clone());
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    let mut client = Client::new(channel(url));
    assert_eq!(client.echo("hello").await.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
    let status = client.echo("hello").await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(words.calls(), 3);
}
