//! Streaming calls.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tests::Events;
use tonic::Code;

use crate::client;
use crate::words::{Reply, Words};

#[tokio::test]
async fn a_clients_stream_is_resent_whole() {
    // Failures before and after the end of the request stream.
    for reply in [
        (|n| match n {
            1 => Reply::Early(Code::Unavailable, None),
            _ => Reply::Good,
        }) as fn(usize) -> Reply,
        |n| match n {
            1 | 2 => Reply::Late,
            _ => Reply::Good,
        },
        |n| match n {
            1 => Reply::Late,
            2 => Reply::Early(Code::Unavailable, None),
            _ => Reply::Good,
        },
    ] {
        let (words, channel) = Words::start(reply).await;
        let events = Events::default();
        let texts = stream::iter(0..20).then(|n| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            format!("{n} ")
        });
        let all: String = (0..20).map(|n| format!("{n} ")).collect();
        let joined = client(&events, channel).join(texts).await;
        assert_eq!(joined.unwrap(), all);
        assert_eq!(words.calls(), events.attempts());
        assert!(events.attempts() > 1);
    }
}

#[tokio::test]
async fn a_servers_stream_passes_after_a_retry() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Early(Code::Unavailable, None),
        _ => Reply::Good,
    })
    .await;
    let letters = client(&Events::default(), channel).letters("hello").await;
    assert_eq!(letters.unwrap().concat(), "hello");
    assert_eq!(words.calls(), 2);
}
