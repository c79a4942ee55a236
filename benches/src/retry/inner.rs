use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tower::{BoxError, Service};

use crate::message;

pub(super) type Request = http::Request<Full<Bytes>>;
pub(super) type Response = http::Response<Full<Bytes>>;

/// Answers immediately, so that a run measures little but the layer.
///
/// Success depends on the request, so that the optimiser cannot drop any layer's failure path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner;

/// A request with few fields.
pub(super) fn request() -> Request {
    message::request(Full::default())
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

impl Service<Request> for Inner {
    type Response = Response;
    type Error = BoxError;
    type Future = Ready<Result<Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> Self::Future {
        ready(match request.uri().path() {
            "" => Err("no path".into()),
            "/broken" => {
                let mut response = Response::default();
                *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
                Ok(response)
            }
            _ => Ok(Response::default()),
        })
    }
}
