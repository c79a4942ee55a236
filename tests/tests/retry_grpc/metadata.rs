//! Metadata of extra attempts.

use std::time::Duration;

use tests::Events;
use tonic::Code;
use tower_jitter_retry::StopReason;

use crate::client;
use crate::words::{Reply, Words};

#[tokio::test]
async fn the_server_sees_how_many_attempts_came_before() {
    let (words, channel) = Words::start(|_| Reply::Early(Code::Unavailable, None)).await;
    let mut client = client(&Events::default(), channel);
    client.echo("hello").await.unwrap_err();
    let before = words.field("grpc-previous-rpc-attempts");
    assert_eq!(before, [None, Some("1".into()), Some("2".into())]);
}

#[tokio::test]
async fn further_attempts_carry_the_remaining_time() {
    let (words, channel) = Words::start(|n| match n {
        1 | 2 => Reply::Early(Code::Unavailable, Some("20")),
        _ => Reply::Good,
    })
    .await;
    let limit = Duration::from_secs(15);
    let mut client = client(&Events::default(), channel);
    let echo = client.echo_within(Some(limit), "hello").await;
    assert_eq!(echo.unwrap(), "hello");
    let times: Vec<_> = words.field("grpc-timeout").iter().map(time).collect();
    let [first, second, third] = times[..] else {
        panic!("{times:?}")
    };
    let pushback = Duration::from_millis(20);
    assert_eq!(first, limit);
    assert!(second <= first - pushback, "{times:?}");
    assert!(third <= second - pushback, "{times:?}");
    assert!(third > Duration::ZERO, "{times:?}");
}

/// The duration in a `grpc-timeout`.
fn time(field: &Option<String>) -> Duration {
    let field = field.as_deref().unwrap();
    let (count, unit) = field.split_at(field.len() - 1);
    let count = count.parse().unwrap();
    match unit {
        "n" => Duration::from_nanos(count),
        "u" => Duration::from_micros(count),
        "m" => Duration::from_millis(count),
        "S" => Duration::from_secs(count),
        _ => panic!("{field}"),
    }
}

#[tokio::test]
async fn no_attempt_is_sent_without_remaining_time() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Early(Code::Unavailable, Some("1")),
        // A pushback beyond the caller's deadline.
        _ => Reply::Early(Code::Unavailable, Some("30000")),
    })
    .await;
    let events = Events::default();
    let mut client = client(&events, channel);
    let limit = Duration::from_secs(15);
    let status = client.echo_within(Some(limit), "hello").await.unwrap_err();
    // The server's status is returned immediately.
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(events.stop(), StopReason::DeadlineExceeded);
    assert_eq!(words.calls(), 2);
}
