//! Responses of the gateway itself.

use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};

/// A short problem document (RFC 9457).
pub(crate) fn problem(status: StatusCode, detail: &str) -> Response {
    let body = serde_json::json!({
        "title": status.canonical_reason(),
        "status": status.as_u16(),
        "detail": detail,
    });
    let content_type = [(CONTENT_TYPE, "application/problem+json")];
    (status, content_type, body.to_string()).into_response()
}
