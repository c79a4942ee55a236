//! Uploads that are retried.
//!
//! The retry layer records a streaming body while the first attempt sends it, and replays the record. A body above
//! `replay_limit` is sent once: its failure goes to the caller. A PUT is idempotent. A POST needs an `Idempotency-Key`.

use std::time::Duration;

use tower::{BoxError, Service, ServiceBuilder};
use tower_jitter_retry::{BuildError, RetryLayer};

/// A client that retries uploads of up to 8 MiB. A concurrency limit around the retry layer bounds the memory of the
/// recorded bodies: at most 16 uploads are in flight.
pub fn client() -> Result<
    impl Service<reqwest::Request, Response = reqwest::Response, Error = BoxError> + Clone,
    BuildError,
> {
    let retry = RetryLayer::builder()
        .http()
        .replay_limit(8 << 20)
        // Ends a stalled attempt, so that the layer can retry it.
        .attempt_timeout(Duration::from_secs(30))
        .build()?;
    Ok(ServiceBuilder::new()
        .concurrency_limit(16)
        .layer(retry)
        .map_err(BoxError::from)
        .service(reqwest::Client::new()))
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use axum::body::Bytes;
    use axum::extract::DefaultBodyLimit;
    use axum::{Router, http::StatusCode, routing::put};
    use futures_util::stream;
    use tower::ServiceExt;

    use super::*;
    use crate::testing::serve;

    /// Rejects the first upload with 503, and answers every later upload with its length.
    async fn server(attempts: &Arc<AtomicUsize>) -> String {
        let attempts = Arc::clone(attempts);
        let upload = async move |body: Bytes| match attempts.fetch_add(1, Relaxed) {
            0 => (StatusCode::SERVICE_UNAVAILABLE, String::new()),
            _ => (StatusCode::OK, body.len().to_string()),
        };
        let app = Router::new()
            .route("/", put(upload))
            .layer(DefaultBodyLimit::disable());
        serve(app).await
    }

    async fn upload(url: &str, megabytes: usize) -> (u16, String) {
        let chunks = (0..megabytes).map(|_| Ok::<_, Infallible>(vec![7; 1 << 20]));
        let body = reqwest::Body::wrap_stream(stream::iter(chunks));
        let request = http::Request::put(url)
            .body(body)
            .unwrap()
            .try_into()
            .unwrap();
        let response = client().unwrap().oneshot(request).await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    }

    #[tokio::test]
    async fn an_upload_within_the_limit_is_sent_again_complete() {
        let attempts = Arc::default();
        let url = server(&attempts).await;
        assert_eq!(upload(&url, 7).await, (200, (7 << 20).to_string()));
        assert_eq!(attempts.load(Relaxed), 2);
    }

    #[tokio::test]
    async fn an_upload_above_the_limit_is_sent_once() {
        let attempts = Arc::default();
        let url = server(&attempts).await;
        assert_eq!(upload(&url, 9).await.0, 503);
        assert_eq!(attempts.load(Relaxed), 1);
    }
}
