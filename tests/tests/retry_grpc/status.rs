//! Retryable statuses and their delays.

use std::time::Duration;

use axum::Router;
use tests::Events;
use tokio::net::TcpListener;
use tonic::Code;
use tower::Layer;
use tower_jitter_retry::{DelaySource, Grpc, Observed, RetryLayerBuilder, StopReason, Verdict};

use crate::words::{Client, ECHO, JOIN, Reply, Words, channel};
use crate::{BACKOFF, builder, client};

#[tokio::test]
async fn unavailable_without_a_body_is_retried() {
    let failing_twice = |n| match n {
        1 => Reply::Early(Code::Unavailable, None),
        2 => Reply::Late,
        _ => Reply::Good,
    };
    let (words, channel) = Words::start(failing_twice).await;
    let events = Events::default();
    let echo = client(&events, channel).echo("hello").await;
    assert_eq!(echo.unwrap(), "hello");
    assert_eq!(words.calls(), 3);
    let backoff = |times| (BACKOFF * times, DelaySource::Backoff);
    assert_eq!(events.delays(), [backoff(1), backoff(2)]);
}

/// gRFC A6 retries only methods whose service config opts in.
#[tokio::test]
async fn a_method_that_is_not_declared_idempotent_is_called_again_after_a_pushback_only() {
    type Builder = RetryLayerBuilder<Grpc, Observed>;
    let rules: [fn(Builder) -> Builder; 4] = [
        |builder| builder,
        |builder| builder.classify(|_| Verdict::transient()),
        |builder| builder.idempotent_methods([JOIN]),
        |builder| builder.idempotent_if(|call| call.path() == JOIN),
    ];
    for (number, rule) in rules.into_iter().enumerate() {
        let events = Events::default();
        let layer = rule(builder(&events)).build().unwrap();
        let (words, channel) = Words::start(|_| Reply::Early(Code::Unavailable, None)).await;
        let echo = Client::new(layer.layer(channel)).echo("hello").await;
        assert_eq!(echo.unwrap_err().code(), Code::Unavailable);
        assert_eq!(words.calls(), 1, "rule {number}");
        assert_eq!(events.stop(), StopReason::Fatal);
    }
    let events = Events::default();
    let layer = builder(&events).build().unwrap();
    let pushback = |n| match n {
        1 => Reply::Early(Code::Unavailable, Some("1")),
        _ => Reply::Good,
    };
    let (words, channel) = Words::start(pushback).await;
    let echo = Client::new(layer.layer(channel)).echo("hello").await;
    assert_eq!(echo.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
}

#[tokio::test]
async fn a_closure_declares_methods_idempotent() {
    let failing_once = |n| match n {
        1 => Reply::Early(Code::Unavailable, None),
        _ => Reply::Good,
    };
    let (words, channel) = Words::start(failing_once).await;
    let layer = builder(&Events::default()).idempotent_if(|call| call.path() == ECHO);
    let mut client = Client::new(layer.build().unwrap().layer(channel));
    assert_eq!(client.echo("hello").await.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
}

#[tokio::test]
async fn no_other_status_is_retried() {
    macro_rules! never_repeated {
        ($($code:ident),* $(,)?) => {$(
            let (words, channel) = Words::start(|_| Reply::Early(Code::$code, None)).await;
            let events = Events::default();
            let status = client(&events, channel).echo("hello").await.unwrap_err();
            assert_eq!(status.code(), Code::$code);
            assert_eq!(words.calls(), 1, "{:?}", Code::$code);
            assert_eq!(events.stop(), StopReason::Fatal);
        )*};
    }
    never_repeated!(
        Cancelled,
        Unknown,
        InvalidArgument,
        DeadlineExceeded,
        NotFound,
        AlreadyExists,
        PermissionDenied,
        ResourceExhausted,
        FailedPrecondition,
        Aborted,
        OutOfRange,
        Unimplemented,
        Internal,
        DataLoss,
        Unauthenticated,
    );
}

#[tokio::test]
async fn resource_exhausted_is_retried_after_the_servers_pushback() {
    let (words, channel) = Words::start(|n| match n {
        1 => Reply::Early(Code::ResourceExhausted, Some("7")),
        _ => Reply::Good,
    })
    .await;
    let events = Events::default();
    let echo = client(&events, channel).echo("hello").await;
    assert_eq!(echo.unwrap(), "hello");
    assert_eq!(words.calls(), 2);
    let exactly = (Duration::from_millis(7), DelaySource::Server);
    assert_eq!(events.delays(), [exactly]);
}

#[tokio::test]
async fn a_pushback_is_an_exact_delay_and_the_backoff_starts_anew_after_it() {
    let (_words, channel) = Words::start(|n| match n {
        3 => Reply::Early(Code::Unavailable, Some("3")),
        _ => Reply::Early(Code::Unavailable, None),
    })
    .await;
    let events = Events::default();
    let layer = builder(&events).max_attempts(6).idempotent_methods([ECHO]);
    let layer = layer.build().unwrap();
    let status = Client::new(layer.layer(channel)).echo("hello").await;
    assert_eq!(status.unwrap_err().code(), Code::Unavailable);
    let backoff = |times| (BACKOFF * times, DelaySource::Backoff);
    let pushback = (Duration::from_millis(3), DelaySource::Server);
    let delays = [backoff(1), backoff(2), pushback, backoff(1), backoff(2)];
    assert_eq!(events.delays(), delays);
    assert_eq!(events.stop(), StopReason::AttemptsExhausted);
}

#[tokio::test]
async fn a_pushback_that_is_no_delay_ends_the_call() {
    macro_rules! ends {
        ($($pushback:literal),*) => {$(
            for reply in [
                (|_| Reply::Early(Code::Unavailable, Some($pushback))) as fn(usize) -> Reply,
                |_| Reply::Early(Code::ResourceExhausted, Some($pushback)),
            ] {
                let (words, channel) = Words::start(reply).await;
                let events = Events::default();
                client(&events, channel).echo("hello").await.unwrap_err();
                assert_eq!(events.stop(), StopReason::RetryForbidden, $pushback);
                assert_eq!(words.calls(), 1, $pushback);
            }
        )*};
    }
    ends!("-1", "soon", "1.5", "+1", "99999999999999999999");
}

#[tokio::test]
async fn a_pushback_that_is_too_long_ends_the_call() {
    let minute_and_more = |_| Reply::Early(Code::Unavailable, Some("60001"));
    let (words, channel) = Words::start(minute_and_more).await;
    let events = Events::default();
    client(&events, channel).echo("hello").await.unwrap_err();
    assert_eq!(events.stop(), StopReason::RetryAfterTooLong);
    assert_eq!(words.calls(), 1);
}

#[tokio::test]
async fn a_call_whose_response_has_begun_is_committed() {
    let (words, channel) = Words::start(|_| Reply::Begun).await;
    let events = Events::default();
    let status = client(&events, channel).echo("hello").await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert_eq!(words.calls(), 1);
    assert_eq!(events.stop(), StopReason::Success);
}

#[tokio::test]
async fn some_responses_without_a_grpc_status_are_unavailable() {
    macro_rules! repeated {
        ($($status:literal),*) => {$(
            let (words, channel) = Words::start(|n| match n {
                1 => Reply::Bare($status),
                _ => Reply::Good,
            })
            .await;
            let events = Events::default();
            let echo = client(&events, channel).echo("hello").await;
            assert_eq!(echo.unwrap(), "hello", "{}", $status);
            assert_eq!(words.calls(), 2);
            assert_eq!(events.delays(), [(BACKOFF, DelaySource::Backoff)]);
        )*};
    }
    repeated!(429, 502, 503, 504);
    macro_rules! returned {
        ($($status:literal),*) => {$(
            let (words, channel) = Words::start(|_| Reply::Bare($status)).await;
            let events = Events::default();
            client(&events, channel).echo("hello").await.unwrap_err();
            assert_eq!(words.calls(), 1, "{}", $status);
            assert_eq!(events.stop(), StopReason::Fatal);
        )*};
    }
    returned!(400, 401, 403, 404, 408, 500, 501);
}

/// A proxy in front of a gRPC server answers with plain HTTP.
#[tokio::test]
async fn a_proxy_that_stays_unavailable_is_given_up_on() {
    for status in [429, 502, 503, 504] {
        let status = http::StatusCode::from_u16(status).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let router: Router = Router::new().fallback(move || async move { status });
        tokio::spawn(async move { axum::serve(listener, router).await });
        let events = Events::default();
        let answer = client(&events, channel(url)).echo("hello").await;
        assert_eq!(answer.unwrap_err().code(), Code::Unavailable, "{status}");
        assert_eq!(events.attempts(), 3, "{status}");
        assert_eq!(events.stop(), StopReason::AttemptsExhausted, "{status}");
    }
}
