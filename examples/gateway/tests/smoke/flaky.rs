//! Retries and hedges hide an unreliable upstream.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::Router;
use axum::http::{Request, StatusCode};
use bytes::Bytes;
use futures::StreamExt as _;
use http_body_util::Full;

use crate::client::{client, get, header, send, serve, text};
use crate::process::Gateway;

const REQUESTS: usize = 300;

/// Returns the number of failed requests and the number of requests at the upstream.
async fn failed_and_seen(args: &[&str]) -> (usize, usize) {
    let unlimited = ["--limit", "100000", "--burst", "100000"];
    let gateway = Gateway::start(&[&unlimited, args].concat());
    let (client, url) = (client(), format!("http://{}/hello", gateway.addr));
    let get = async || {
        let request = Request::get(&url).body(Full::<Bytes>::default()).unwrap();
        let response = client.request(request).await.unwrap();
        (response.status().is_success(), text(response).await)
    };
    let requests = futures::stream::repeat_with(get).take(REQUESTS);
    let answers: Vec<_> = requests.buffer_unordered(20).collect().await;
    let failed = answers.iter().filter(|(success, _)| !success).count();
    // The upstream numbers its requests: "request 17: GET /hello".
    let number = |text: &str| {
        text.strip_prefix("request ")?
            .split(':')
            .next()?
            .parse()
            .ok()
    };
    let numbers = answers.iter().filter_map(|(_, text)| number(text));
    (failed, numbers.max().unwrap())
}

#[tokio::test]
async fn failures_are_retried_and_slow_responses_hedged() {
    let (failed, seen) = failed_and_seen(&[]).await;
    assert!(failed <= 3, "{failed} of {REQUESTS} failed");
    assert!(seen > REQUESTS, "the upstream saw {seen}");
}

#[tokio::test]
async fn without_retries_the_failures_show() {
    let (failed, _) = failed_and_seen(&["--attempts", "1"]).await;
    assert!(failed > 3, "only {failed} of {REQUESTS} failed");
}

#[tokio::test]
async fn unsafe_requests_are_sent_once() {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let upstream = Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        StatusCode::SERVICE_UNAVAILABLE
    });
    let gateway = Gateway::before(serve(upstream).await, &[]);
    for (method, key, attempts) in [("GET", None, 3), ("POST", None, 1), ("POST", Some("1"), 3)] {
        let mut request = Request::builder()
            .method(method)
            .uri(format!("http://{}/", gateway.addr));
        if let Some(key) = key {
            request = request.header("idempotency-key", key);
        }
        let response = send(request, "").await;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(
            calls.swap(0, Ordering::Relaxed),
            attempts,
            "{method} {key:?}"
        );
    }
}

/// The upstream demands a minute, which is longer than the request's deadline.
#[tokio::test]
async fn a_wait_beyond_the_deadline_fails_immediately() {
    let calls = Arc::new(AtomicU32::new(0));
    let count = calls.clone();
    let upstream = Router::new().fallback(async move || {
        count.fetch_add(1, Ordering::Relaxed);
        (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "60")])
    });
    let gateway = Gateway::before(serve(upstream).await, &["--hedge-at", "60000"]);
    let answer = get(format!("http://{}/", gateway.addr));
    let answer = tokio::time::timeout(Duration::from_secs(20), answer).await;
    let answer = answer.expect("an answer long before the minute is over");
    assert_eq!(answer.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(header(answer.headers(), "retry-after"), "60");
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}
