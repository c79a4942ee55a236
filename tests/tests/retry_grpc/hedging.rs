//! Hedges of calls that may run twice.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tests::soon;
use tonic::Code;
use tonic::transport::Channel;
use tower::Layer;
use tower_hedge_latency::{Grpc, Hedge, HedgeLayer};

use crate::words::{Client, ECHO, Reply, Words};

/// Long enough for an answer on a busy machine.
const TRIGGER: Duration = Duration::from_millis(250);

fn client(methods: &[&str], channel: Channel) -> Client<Hedge<Channel, Grpc>> {
    let layer = HedgeLayer::builder().fixed(TRIGGER).max_hedges(3).grpc();
    let layer = layer.idempotent_methods(methods.iter().copied());
    Client::new(layer.build().unwrap().layer(channel))
}

#[tokio::test]
async fn a_slow_call_of_a_listed_method_is_hedged_and_the_hedge_is_marked() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Never,
        _ => Reply::Good,
    })
    .await;
    let mut client = client(&[ECHO], channel);
    let limit = Some(Duration::from_secs(15));
    assert_eq!(client.echo_within(limit, "hello").await.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
    let one = |name| assert_eq!(words.field(name), [None, Some("1".into())], "{name}");
    one("grpc-previous-rpc-attempts");
    assert_eq!(words.field("x-hedge-attempt"), [None, Some("2".into())]);
    let timeouts = words.field("grpc-timeout");
    assert_ne!(timeouts[0], timeouts[1], "it has what is left of the time");
}

#[tokio::test]
async fn any_other_method_is_sent_once() {
    let (words, channel) = Words::start(|_| Reply::Never).await;
    let mut client = client(&["/test.Words/Join"], channel);
    let limit = Some(2 * TRIGGER);
    client.echo_within(limit, "hello").await.unwrap_err();
    assert_eq!(words.calls(), 1);
}

#[tokio::test]
async fn unavailable_does_not_win_and_a_pushback_that_forbids_retries_ends_the_hedges() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Never,
        _ => Reply::Early(Code::Unavailable, Some("-1")),
    })
    .await;
    let mut client = client(&[ECHO], channel);
    let limit = Some(4 * TRIGGER);
    client.echo_within(limit, "hello").await.unwrap_err();
    assert_eq!(words.calls(), 2);
}

/// Each of the two attempts has its own position in the request stream.
#[tokio::test]
async fn a_clients_stream_is_sent_with_both_attempts() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Never,
        _ => Reply::Good,
    })
    .await;
    // The hedge is due long before the end of the stream.
    let texts = stream::iter(0..40).then(|n| async move {
        tokio::time::sleep(Duration::from_millis(4)).await;
        format!("{n} ")
    });
    let all: String = (0..40).map(|n| format!("{n} ")).collect();
    let mut client = client(&["/test.Words/Join"], channel);
    assert_eq!(soon(client.join(texts)).await.unwrap(), all);
    assert!(words.calls() > 1);
}
