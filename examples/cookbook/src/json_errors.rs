//! Rejections in the JSON format of your API.
//!
//! The layer adds `Retry-After` and the `RateLimit` headers to the response of the closure.

use axum::Json;
use axum::response::{IntoResponse, Response};
use axum::{Router, routing::get};
use serde_json::json;
use tower_dist_ratelimit::{BuildError, Policy, Quota, RateLimitLayer, Rejection, backend::Memory};

/// Builds the response to a rejected request, with the status of [`Rejection::status`]: 429 for a limit, 503 while the
/// backend fails, 400 or 500 for a request without a key.
#[must_use]
pub fn error(rejection: &Rejection<'_>) -> Response {
    let violated: Vec<&str> = rejection.violated().collect();
    let seconds = rejection
        .retry_after()
        .map(|wait| wait.as_secs_f64().ceil());
    let body = json!({ "error": { "code": "rate_limited", "limits": violated, "retry_after_seconds": seconds } });
    (rejection.status(), Json(body)).into_response()
}

/// One request a minute, with rejections as [`error`] writes them.
pub fn app() -> Result<Router, BuildError> {
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("total", Quota::per_minute(1)))
        .rejection(error)
        .build()?;
    Ok(Router::new().route("/", get(async || "hello")).layer(limit))
}

#[cfg(test)]
mod tests {
    use http::Request;
    use http_body_util::BodyExt;

    use super::*;
    use crate::testing::send;

    #[tokio::test(start_paused = true)]
    async fn a_rejection_has_the_body_of_the_api_and_the_standard_headers() {
        let app = app().unwrap();
        assert_eq!(
            send(&app, [127, 0, 0, 1], Request::get("/")).await.status(),
            200
        );

        let rejected = send(&app, [127, 0, 0, 1], Request::get("/")).await;
        assert_eq!(rejected.status(), 429);
        assert_eq!(rejected.headers()["content-type"], "application/json");
        assert_eq!(rejected.headers()["retry-after"], "60");
        assert_eq!(
            rejected.headers()["ratelimit-policy"],
            r#""total";q=1;w=60"#
        );
        let body = rejected.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let expected = json!({ "error": { "code": "rate_limited", "limits": ["total"], "retry_after_seconds": 60.0 } });
        assert_eq!(body, expected);
    }
}
