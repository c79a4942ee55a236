//! An upstream that fails in several ways.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};
use bytes::Bytes;

/// | path | behaviour |
/// |---|---|
/// | `/busy` | answers 503 at first, then 200 |
/// | `/stalls` | never answers at first, then 200 |
/// | `/broken` | answers 500 |
/// | `/upload` | answers 503 at first, then 200 if the body is complete |
pub(crate) fn unreliable() -> Router {
    let first = || {
        let calls = Arc::new(AtomicU32::new(0));
        move || calls.fetch_add(1, Ordering::Relaxed) == 0
    };
    let (busy, stalls, upload) = (first(), first(), first());
    let upload = async move |body: Bytes| match upload() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false if body == "line 1\nline 2\nline 3\n" => StatusCode::OK,
        false => StatusCode::BAD_REQUEST,
    };
    let busy = async move || match busy() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::OK,
    };
    let stalls = async move || match stalls() {
        true => pending().await,
        false => StatusCode::OK,
    };
    Router::new()
        .route("/busy", get(busy))
        .route("/stalls", get(stalls))
        .route("/broken", get(async || StatusCode::INTERNAL_SERVER_ERROR))
        .route("/upload", post(upload))
}
