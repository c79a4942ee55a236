use std::future::{Ready, ready};
use std::task::{Context, Poll};

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tower::{BoxError, Service};

use crate::message;

pub(super) type Request = http::Request<Full<Bytes>>;
pub(super) type Response = http::Response<Full<Bytes>>;

/// Answers at once, so that next to nothing but the layer is timed.
///
/// Whether it answers well depends on the request, which the optimiser does not know: no layer's
/// failure path can be left out of the program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inner;

/// A request without more.
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
