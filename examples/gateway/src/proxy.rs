//! The proxy handler: forwards a request through the outbound stack and returns the response.

use std::convert::Infallible;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{ConnectInfo, Request, State};
use axum::handler::Handler as _;
use axum::http::header::{HeaderValue, InvalidHeaderValue, UPGRADE};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{Extensions, Method, StatusCode, Uri, Version};
use axum::response::{IntoResponse, Response};
use hyper::body::Incoming;
use tower::timeout::error::Elapsed;
use tower::{BoxError, Service, ServiceExt};
use tower_jitter_retry::Elapsed as DeadlineElapsed;

use crate::hop;
use crate::problem::problem;

/// The upstream, and the stack that sends requests to it.
#[derive(Debug)]
pub struct Proxy<S> {
    upstream: Authority,
    /// The `Host` of the upstream.
    host: HeaderValue,
    outbound: S,
}

impl<S> Proxy<S>
where
    S: Service<
            Request,
            Response = axum::http::Response<Incoming>,
            Error: Into<BoxError>,
            Future: Send,
        > + Clone
        + Send
        + Sync
        + 'static,
{
    /// The handler as a service.
    ///
    /// # Errors
    ///
    /// The authority is not a valid header value.
    pub fn service(
        upstream: Authority,
        outbound: S,
    ) -> Result<
        impl Service<Request, Response = Response, Error = Infallible, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static,
        InvalidHeaderValue,
    > {
        let host = HeaderValue::from_str(upstream.as_str())?;
        Ok(forward.with_state(Arc::new(Self {
            upstream,
            host,
            outbound,
        })))
    }
}

/// Forwards a request. Returns the response, or a problem document with the reason.
pub(crate) async fn forward<S>(
    State(proxy): State<Arc<Proxy<S>>>,
    ConnectInfo(peer): ConnectInfo<SocketAddr>,
    request: Request,
) -> Response
where
    S: Service<Request, Response = axum::http::Response<Incoming>> + Clone,
    S::Error: Into<BoxError>,
{
    // The body streams through. The layers below record it for further attempts.
    let (mut head, body) = request.into_parts();
    if head.method == Method::CONNECT || head.headers.contains_key(UPGRADE) {
        let detail = "this gateway forwards neither CONNECT nor protocol upgrades";
        return problem(StatusCode::NOT_IMPLEMENTED, detail);
    }
    head.uri = upstream_uri(&proxy.upstream, &head.uri);
    // The version is a property of a connection, too.
    head.version = Version::HTTP_11;
    hop::forward(&mut head.headers, peer, proxy.host.clone());
    // They describe the client's connection, and a retry or a hedge would copy them.
    head.extensions = Extensions::new();
    let request = Request::from_parts(head, body);
    // Not `oneshot`, which moves the request and the response's future one more time.
    let mut outbound = proxy.outbound.clone();
    if let Err(error) = outbound.ready().await {
        return no_answer(&*error.into());
    }
    match outbound.call(request).await {
        // The gateway rejects every request for an upgrade above.
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

/// The request's path and query at the upstream, for any requested host.
fn upstream_uri(upstream: &Authority, requested: &Uri) -> Uri {
    let mut parts = axum::http::uri::Parts::default();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream.clone());
    let path = requested.path_and_query().cloned();
    parts.path_and_query = Some(path.unwrap_or(PathAndQuery::from_static("/")));
    // Fails only if one of the three parts is missing.
    Uri::from_parts(parts).unwrap_or_default()
}

fn no_answer(error: &(dyn Error + Send + Sync + 'static)) -> Response {
    // The timeout of the attempt, or the deadline of the request.
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
