use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::serve::ListenerExt as _;

use super::*;

async fn serve() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(axum::serve(listener, upstream::unreliable()).into_future());
    url
}

#[tokio::test]
async fn a_busy_or_stalled_request_is_retried_and_the_last_failure_is_returned() {
    let (client, url) = (hyper_client().unwrap(), serve().await);
    for (path, expected) in [
        ("busy", StatusCode::OK),
        ("stalls", StatusCode::OK),
        ("broken", StatusCode::INTERNAL_SERVER_ERROR),
    ] {
        let uri = format!("{url}/{path}").parse().unwrap();
        assert_eq!(get(client.clone(), uri).await.unwrap(), expected, "{path}");
    }
}

#[tokio::test]
async fn a_streaming_body_is_resent_whole() {
    let url = serve().await;
    assert_eq!(
        post(reqwest_client().unwrap(), &format!("{url}/upload"))
            .await
            .unwrap(),
        StatusCode::OK
    );
}

/// Serves an app; returns its URL and a counter of accepted connections.
async fn counted(app: axum::Router) -> (String, Arc<AtomicU32>) {
    let connections = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&connections);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let listener = listener.tap_io(move |_| {
        count.fetch_add(1, Ordering::Relaxed);
    });
    tokio::spawn(axum::serve(listener, app).into_future());
    (url, connections)
}

#[tokio::test]
async fn requests_one_after_another_share_a_connection() {
    let app = axum::Router::new().fallback(async |_: Bytes| StatusCode::OK);
    let (url, connections) = counted(app).await;
    let (hyper, reqwest) = (hyper_client().unwrap(), reqwest_client().unwrap());
    for _ in 0..20 {
        get(hyper.clone(), url.parse().unwrap()).await.unwrap();
    }
    // A connection may be opened while the previous one returns to the pool.
    let opened = connections.swap(0, Ordering::Relaxed);
    assert!(opened <= 5, "{opened} connections for 20 GETs");
    for _ in 0..20 {
        post(reqwest.clone(), &url).await.unwrap();
    }
    let opened = connections.load(Ordering::Relaxed);
    assert!(opened <= 5, "{opened} connections for 20 POSTs");
}

#[tokio::test]
async fn requests_to_one_host_share_a_budget() {
    for is_get in [true, false] {
        let attempts = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&attempts);
        let app = axum::Router::new().fallback(async move |_: Bytes| {
            count.fetch_add(1, Ordering::Relaxed);
            StatusCode::INTERNAL_SERVER_ERROR
        });
        let (url, _) = counted(app).await;
        let (hyper, reqwest) = (hyper_client().unwrap(), reqwest_client().unwrap());
        let started = tokio::time::Instant::now();
        let calls = (0..200).map(async |_| {
            let status = if is_get {
                get(hyper.clone(), url.parse().unwrap()).await
            } else {
                post(reqwest.clone(), &url).await
            };
            assert!(status.unwrap().is_server_error());
        });
        futures_util::future::join_all(calls).await;
        // The budget starts with 100 tokens, gains 10 per second, and at most a fifth of a token per call.
        let gained = 10 * u32::try_from(started.elapsed().as_secs() + 1).unwrap();
        let retries = attempts.load(Ordering::Relaxed).saturating_sub(200);
        assert!(
            retries <= 100 + 200 / 5 + gained,
            "{retries} retries of 200 calls"
        );
    }
}
