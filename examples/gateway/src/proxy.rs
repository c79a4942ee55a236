//! The proxy handler: one request in, one through the outbound stack, its answer back.

use std::error::Error;
use std::net::SocketAddr;

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::UPGRADE;
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Method, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service, ServiceExt};

use crate::hop;
use crate::problem::problem;

/// Bodies up to this size are collected, so that a request can be sent more than once at no
/// further cost.
const BODY_LIMIT: usize = 64 * 1024;

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
    S: Service<axum::http::Request<Full<Bytes>>, Response = axum::http::Response<Incoming>>,
    S::Error: Into<BoxError>,
{
    let (mut head, body) = request.into_parts();
    if head.method == Method::CONNECT || head.headers.contains_key(UPGRADE) {
        let detail = "this gateway forwards neither CONNECT nor protocol upgrades";
        return problem(StatusCode::NOT_IMPLEMENTED, detail);
    }
    let body = match collect(body).await {
        Ok(body) => body,
        Err(refusal) => return refusal,
    };
    head.uri = upstream_uri(&proxy.upstream, &head.uri);
    // The version is a property of a connection as well.
    head.version = Version::HTTP_11;
    hop::forward(&mut head.headers, peer);
    let request = axum::http::Request::from_parts(head, Full::new(body));
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

async fn collect(body: Body) -> Result<Bytes, Response> {
    let too_large = || {
        let detail = format!("a request body may have up to {BODY_LIMIT} bytes");
        problem(StatusCode::PAYLOAD_TOO_LARGE, &detail)
    };
    // A body whose length is known need not be read to be refused.
    if body.size_hint().lower() > BODY_LIMIT as u64 {
        return Err(too_large());
    }
    match Limited::new(body, BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(too_large()),
        Err(_) => Err(problem(
            StatusCode::BAD_REQUEST,
            "the request body broke off",
        )),
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
    if error.is::<Elapsed>() {
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
