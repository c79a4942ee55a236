//! Streaming responses that are charged by size.
//!
//! The size is unknown when the request arrives. The policy reserves the cost of a usual response, and the meter
//! corrects the reservation when the body ends, also if the client disconnects.

use axum::body::Body;
use axum::{Extension, Router, routing::get};
use bytes::Bytes;
use futures_util::stream;
use std::convert::Infallible;
use tower_dist_ratelimit::{
    BuildError, Policy, Quota, RateLimitHandle, RateLimitLayer, backend::Memory, key,
};

/// Ten megabytes an hour for each API key. A request reserves 64 kB.
pub fn app() -> Result<Router, BuildError> {
    let bytes = Policy::new("bytes", Quota::per_hour(10_000_000)).by(key::header("x-api-key"));
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(bytes.cost(64_000))
        // Gives handlers the `RateLimitHandle`.
        .handle()
        .build()?;
    Ok(Router::new().route("/export", get(export)).layer(limit))
}

async fn export(Extension(handle): Extension<RateLimitHandle>) -> Body {
    let chunks = (0..1_000).map(|_| Ok::<_, Infallible>(Bytes::from_static(&[0; 1_000])));
    let body = Body::from_stream(stream::iter(chunks));
    Body::new(
        handle
            .meter()
            .body(body, |chunk: &Bytes| chunk.len() as u64),
    )
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt;

    use super::*;
    use crate::testing::send;

    /// The remaining tokens before the response's own reservation.
    async fn remaining(app: &Router) -> u64 {
        let response = send(
            app,
            [127, 0, 0, 1],
            Request::get("/export").header("x-api-key", "ada"),
        )
        .await;
        let field = response.headers()["ratelimit"].to_str().unwrap();
        let remaining = field
            .split(';')
            .find_map(|part| part.strip_prefix("r="))
            .unwrap();
        // The body is dropped without a byte, so the reservation is refunded.
        remaining.parse::<u64>().unwrap() + 64_000
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_costs_the_bytes_that_it_sent() {
        let app = app().unwrap();
        let request = || Request::get("/export").header("x-api-key", "ada");
        assert_eq!(remaining(&app).await, 10_000_000);

        let complete = send(&app, [127, 0, 0, 1], request()).await;
        complete.into_body().collect().await.unwrap();
        assert_eq!(remaining(&app).await, 9_000_000);

        let mut aborted = send(&app, [127, 0, 0, 1], request()).await.into_body();
        for _ in 0..10 {
            aborted.frame().await.unwrap().unwrap();
        }
        drop(aborted);
        assert_eq!(remaining(&app).await, 8_990_000);
    }
}
