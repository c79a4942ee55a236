use std::convert::Infallible;
use std::future::{Ready, ready};
use std::task::{Context, Poll};

use axum::body::Body;
use http::{HeaderName, HeaderValue, StatusCode};
use tower::{BoxError, Service};

use crate::message;

/// axum's body, because tower_governor answers with that or tonic's.
pub(super) type Request = http::Request<Body>;
pub(super) type Response = http::Response<Body>;

/// Answers immediately, so that a run measures little but the layer. The response depends on the request, so that the
/// optimiser cannot know it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner;

/// A request as a server passes it on, with the client's key.
pub(super) fn request() -> Request {
    let mut request = message::request(Body::empty());
    let headers = request.headers_mut();
    headers.insert(KEY, HeaderValue::from_static("client-00000042"));
    request
}

/// The field with the client's key.
pub(super) const KEY: HeaderName = HeaderName::from_static("x-api-key");

impl Service<Request> for Inner {
    type Response = Response;
    type Error = Infallible;
    type Future = Ready<Result<Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let mut response = Response::default();
        if request.uri().path() == "/missing" {
            *response.status_mut() = StatusCode::NOT_FOUND;
        }
        ready(Ok(response))
    }
}

impl Service<u64> for Inner {
    type Response = u64;
    type Error = BoxError;
    type Future = Ready<Result<u64, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Self::Future {
        ready(request.checked_add(1).ok_or_else(|| "overflow".into()))
    }
}
