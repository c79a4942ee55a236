//! Responses that are failures.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::response::{IntoResponse, Response};
use axum::routing::any;
use http::{Method, StatusCode};
use tests::Events;
use tests::clients::Client;
use tokio::net::TcpListener;
use tower_jitter_retry::{DelaySource, StopReason};

use crate::{DELAYED, send};

/// Fails the first request with this response, and counts all requests.
async fn server(
    failure: impl IntoResponse + Clone + Send + Sync + 'static,
) -> (String, Arc<AtomicUsize>) {
    let requests = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&requests);
    let handler = move || async move {
        match count.fetch_add(1, SeqCst) {
            0 => failure.into_response(),
            _ => Response::new("hello".into()),
        }
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router: Router = Router::new().route("/", any(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });
    (url, requests)
}

#[tokio::test]
async fn a_transient_status_is_retried() {
    for status in [408, 425, 500, 502, 503, 504] {
        let status = StatusCode::from_u16(status).unwrap();
        for client in Client::ALL {
            let (url, requests) = server(status).await;
            let events = Events::default();
            let answer = send(client, &events, Method::GET, &url).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{client:?}, {status}");
            assert_eq!(answer.info.unwrap().attempts, 2, "{client:?}, {status}");
            assert_eq!(events.delays(), [DELAYED], "{client:?}, {status}");
            assert_eq!(requests.load(SeqCst), 2, "{client:?}, {status}");

            let (url, requests) = server(status).await;
            let events = Events::default();
            let answer = send(client, &events, Method::POST, &url).await.unwrap();
            assert_eq!(answer.status, status, "{client:?}");
            assert_eq!(events.stop(), StopReason::Fatal, "{client:?}, {status}");
            assert_eq!(requests.load(SeqCst), 1, "{client:?}, {status}");
        }
    }
}

/// The server rejects before it processes.
#[tokio::test]
async fn a_429_is_retried_for_every_method() {
    for method in [Method::GET, Method::POST] {
        for client in Client::ALL {
            let (url, requests) =
                server((StatusCode::TOO_MANY_REQUESTS, [("retry-after", "0")])).await;
            let events = Events::default();
            let answer = send(client, &events, method.clone(), &url).await.unwrap();
            assert_eq!(answer.status, StatusCode::OK, "{client:?}, {method}");
            assert_eq!(requests.load(SeqCst), 2, "{client:?}, {method}");
        }
    }
}

#[tokio::test]
async fn a_retry_after_is_a_floor() {
    let calls = Client::ALL.map(|client| async move {
        let (url, requests) =
            server((StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "1")])).await;
        let events = Events::default();
        let answer = send(client, &events, Method::GET, &url).await.unwrap();
        assert_eq!(answer.status, StatusCode::OK, "{client:?}");
        assert_eq!(requests.load(SeqCst), 2, "{client:?}");
        let [(delay, DelaySource::Server)] = events.delays()[..] else {
            panic!("{client:?}: {events:?}")
        };
        let second = Duration::from_secs(1);
        assert!(
            (second..=second * 11 / 10).contains(&delay),
            "{client:?}: {delay:?}"
        );
    });
    // The calls run concurrently, since each waits for a second.
    futures_util::future::join_all(calls).await;
}

/// HTTP/2 keeps the whitespace around a field's value, which HTTP/1 strips.
#[tokio::test]
async fn whitespace_around_a_retry_after_changes_nothing() {
    for client in Client::ALL {
        let failure = (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", "  3600 ")],
        );
        let (url, requests) = server(failure).await;
        let events = Events::default();
        let answer = send(client, &events, Method::GET, &url).await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{client:?}");
        assert_eq!(answer.info.unwrap().stop, StopReason::RetryAfterTooLong);
        assert_eq!(requests.load(SeqCst), 1, "{client:?}");
    }
}

#[tokio::test]
async fn a_retry_after_that_is_too_long_is_the_callers() {
    for client in Client::ALL {
        let failure = (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "3600")]);
        let (url, requests) = server(failure).await;
        let events = Events::default();
        let answer = send(client, &events, Method::GET, &url).await.unwrap();
        assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{client:?}");
        assert_eq!(answer.info.unwrap().stop, StopReason::RetryAfterTooLong);
        assert_eq!(requests.load(SeqCst), 1, "{client:?}");
    }
}
