//! Streaming responses whose charge is settled at their end.

use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use axum::routing::get;
use axum::{Extension, Router};
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use tokio::sync::oneshot;
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{Meter, Policy, Quota, RateLimitHandle, RateLimitLayer};

use crate::{client, serve};

/// Counts the chunks that are sent. Its drop, after the charge has settled, wakes the receiver.
struct Stream {
    meter: Meter,
    _gone: oneshot::Sender<()>,
}

/// A server that streams `chunks` chunks at a token each, after it reserved 900 of 2000 tokens, and signals the end.
async fn server(chunks: usize) -> (String, oneshot::Receiver<()>) {
    let (gone, settled) = oneshot::channel();
    let gone = Arc::new(Mutex::new(Some(gone)));
    let download = async move |Extension(handle): Extension<RateLimitHandle>| {
        let Some(_gone) = gone.lock().unwrap().take() else {
            return Body::empty();
        };
        let mut stream = Stream {
            meter: handle.meter(),
            _gone,
        };
        let chunks = stream::iter(0..chunks).map(move |_| {
            stream.meter.add(1);
            Ok::<_, Infallible>(Bytes::from(vec![0; 64 * 1024]))
        });
        Body::from_stream(chunks)
    };
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("chunks", Quota::per_day(1).burst(2_000)).cost(900))
        .handle()
        .build()
        .unwrap();
    let url = serve(Router::new().route("/", get(download)).layer(layer)).await;
    (url, settled)
}

/// The remaining tokens after another request, which reserves 900.
async fn left(url: &str) -> u64 {
    let response = client().get(url).send().await.unwrap();
    let field = response.headers()["ratelimit"].to_str().unwrap();
    let left = field.strip_prefix("\"chunks\";r=").unwrap();
    left.split_once(';').unwrap().0.parse().unwrap()
}

#[tokio::test]
async fn a_response_that_ends_costs_the_tokens_that_it_used() {
    let (url, settled) = server(30).await;
    let response = client().get(&url).send().await.unwrap();
    assert_eq!(response.bytes().await.unwrap().len(), 30 * 64 * 1024);
    let _ = settled.await;
    assert_eq!(left(&url).await, 2_000 - 30 - 900);
}

#[tokio::test]
async fn a_response_that_is_dropped_half_way_costs_the_tokens_that_it_used() {
    // More than all buffers between client and server can hold.
    let (url, settled) = server(100_000).await;
    let client = client();
    let mut response = client.get(&url).send().await.unwrap();
    assert!(response.chunk().await.unwrap().is_some());
    drop((response, client));
    let _ = settled.await;
    let sent = 2_000 - 900 - left(&url).await;
    assert!((1..=600).contains(&sent), "{sent}");
}

/// As above, for a body that settles itself; in bytes, with 900 KiB reserved.
#[tokio::test]
async fn a_body_counts_its_sent_bytes_even_if_it_is_dropped_half_way() {
    const KIB: u64 = 1024;
    let download = async |Extension(handle): Extension<RateLimitHandle>, uri: http::Uri| {
        let pieces = uri.query().unwrap().parse().unwrap();
        let pieces = stream::iter(0..pieces).map(|_: u64| Ok::<_, Infallible>(vec![0; 64 * 1024]));
        let body = Body::from_stream(pieces);
        Body::new(handle.meter().body(body, |data: &Bytes| data.len() as u64))
    };
    let quota = Quota::per_day(1).burst(100_000 * KIB);
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("bytes", quota).cost(900 * KIB))
        .handle()
        .build()
        .unwrap();
    let url = serve(Router::new().route("/", get(download)).layer(layer)).await;
    let begin = async |pieces: u64| {
        let response = client()
            .get(format!("{url}?{pieces}"))
            .send()
            .await
            .unwrap();
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        let left = field.strip_prefix("\"bytes\";r=").unwrap();
        let left: u64 = left.split_once(';').unwrap().0.parse().unwrap();
        (response, 100_000 - 900 - left.div_ceil(KIB))
    };
    let taken = async || begin(0).await.1;
    let settled = async |expected: RangeInclusive<u64>| {
        // The server itself detects that the client stopped reading.
        tests::soon(async {
            while !expected.contains(&taken().await) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    };

    let (whole, _) = begin(30).await;
    assert_eq!(whole.bytes().await.unwrap().len(), 30 * 64 * 1024);
    settled(30 * 64..=30 * 64).await;

    // More than all buffers between client and server can hold.
    let (mut half, _) = begin(100_000).await;
    assert!(half.chunk().await.unwrap().is_some());
    drop(half);
    settled(30 * 64 + 64..=30 * 64 + 40_000).await;
}
