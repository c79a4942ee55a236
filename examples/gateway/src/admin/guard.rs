//! Keeps other web sites from using the page through a visitor's browser.

use axum::Json;
use axum::extract::{FromRequest, Request};
use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use std::net::IpAddr;

/// Rejects requests for a name other than `localhost` or an IP address: a web site can point its own name at this
/// machine.
pub(super) async fn local_host(request: Request, next: Next) -> Response {
    match host(request.headers()) {
        Some(host) if is_address(&host) => next.run(request).await,
        _ => (
            StatusCode::FORBIDDEN,
            "open this page by its IP address or as localhost\n",
        )
            .into_response(),
    }
}

fn host(headers: &HeaderMap) -> Option<Authority> {
    headers.get(HOST)?.to_str().ok()?.parse().ok()
}

fn is_address(authority: &Authority) -> bool {
    let host = authority.host().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok()
}

/// The JSON of a POST from the page itself. Browsers send `Origin` with every POST.
pub(super) struct SameOrigin<T>(pub(super) T);

impl<S: Send + Sync, T: serde::de::DeserializeOwned> FromRequest<S> for SameOrigin<T> {
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        let headers = request.headers();
        let origin = headers.get(ORIGIN).and_then(|origin| origin.to_str().ok());
        let own = host(headers).map(|host| format!("http://{host}"));
        if origin.is_none() || origin != own.as_deref() {
            return Err((
                StatusCode::FORBIDDEN,
                "only this page may use its switches\n",
            )
                .into_response());
        }
        let Json(value) = Json::from_request(request, state)
            .await
            .map_err(IntoResponse::into_response)?;
        Ok(Self(value))
    }
}
