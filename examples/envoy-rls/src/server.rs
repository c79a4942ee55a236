//! The gRPC server of the only method.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::{Request, Response};
use tonic::body::Body;
use tonic::{Status, server};
use tonic_prost::ProstCodec;
use tower::{Service, service_fn};

use crate::proto::{RateLimitRequest, SHOULD_RATE_LIMIT};
use crate::service::RateLimiter;

/// A [`RateLimiter`] as a gRPC service.
#[derive(Clone, Debug)]
pub(crate) struct RateLimitServer(pub(crate) Arc<RateLimiter>);

impl server::NamedService for RateLimitServer {
    const NAME: &'static str = "envoy.service.ratelimit.v3.RateLimitService";
}

impl Service<Request<Body>> for RateLimitServer {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != SHOULD_RATE_LIMIT {
            let unknown = Status::unimplemented("no such method");
            return Box::pin(std::future::ready(Ok(unknown.into_http())));
        }
        let limiter = Arc::clone(&self.0);
        let method = service_fn(move |request: tonic::Request<RateLimitRequest>| {
            let limiter = Arc::clone(&limiter);
            async move {
                let response = limiter.should_rate_limit(request.get_ref()).await?;
                Ok(tonic::Response::new(response))
            }
        });
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(method, request).await)
        })
    }
}
