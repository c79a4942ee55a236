//! The proxy handler: one request in, one through the outbound stack, its answer back.

use std::error::Error;
use std::net::SocketAddr;

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::UPGRADE;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Method, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service, ServiceExt};
use tower_jitter_retry::Elapsed as DeadlineElapsed;

use crate::hop;
use crate::problem::problem;

/// Where requests go, and through what.
#[derive(Clone, Debug)]
pub(crate) struct Proxy<S> {
    pub(crate) upstream: Authority,
    pub(crate) outbound: S,
}

/// Forwards a request and returns the answer, or says why not.
pub(crate) async fn forward<S>(
    State(proxy): State<Proxy<S>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response
where
    S: Service<Request, Response = axum::http::Response<Incoming>>,
    S::Error: Into<BoxError>,
{
    // The body streams through; the layers below record what they need to send it again.
    let (mut head, body) = request.into_parts();
    if head.method == Method::CONNECT || head.headers.contains_key(UPGRADE) {
        let detail = "this gateway forwards neither CONNECT nor protocol upgrades";
        return problem(StatusCode::NOT_IMPLEMENTED, detail);
    }
    head.uri = upstream_uri(&proxy.upstream, &head.uri);
    // The version is a property of a connection as well.
    head.version = Version::HTTP_11;
    hop::forward(&mut head.headers, peer);
    let request = Request::from_parts(head, body);
    match proxy.outbound.oneshot(request).await {
        // No request asks for it: those that do are refused above.
        Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => problem(
            StatusCode::BAD_GATEWAY,
            "the upstream switched protocols unasked",
        ),
        Ok(mut response) => {
            hop::strip(response.headers_mut());
            *response.version_mut() = Version::HTTP_11;
            response.into_response()
        }
        Err(error) => no_answer(&*error.into()),
    }
}

/// The request's path and query at the upstream, whatever host the client asked for.
fn upstream_uri(upstream: &Authority, requested: &Uri) -> Uri {
    let mut parts = axum::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream.clone());
    let path = requested.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    // Fails only when one of the three is missing.
    Uri::from_parts(parts).unwrap_or_default()
}

fn no_answer(error: &(dyn Error + Send + Sync + 'static)) -> Response {
    // Of the attempt, or of the request.
    if error.is::<Elapsed>() || error.is::<DeadlineElapsed>() {
        return problem(
            StatusCode::GATEWAY_TIMEOUT,
            "the upstream did not answer in time",
        );
    }
    let mut cause: &dyn Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    let detail = format!("no answer from the upstream: {cause}");
    problem(StatusCode::BAD_GATEWAY, &detail)
}
