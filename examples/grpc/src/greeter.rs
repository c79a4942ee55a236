//! A stand-in for the code that `tonic-prost-build` generates from
//!
//! ```proto
//! package example;
//! service Greeter { rpc Greet (Name) returns (Greeting); }
//! message Name { string name = 1; }
//! message Greeting { string text = 1; }
//! ```
//!
//! It is written by hand, so that the example builds without a compiler for protocol buffers.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Status, client, server};
use tonic_prost::ProstCodec;
use tower::{BoxError, Service, service_fn};

/// The full name of the method, by which retry and hedge identify it.
pub(crate) const GREET: &str = "/example.Greeter/Greet";

/// The name to greet.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Name {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
}

/// A greeting.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Greeting {
    #[prost(string, tag = "1")]
    pub(crate) text: String,
}

/// The trait that a server implements.
pub(crate) trait Greeter: Send + Sync + 'static {
    /// Answers one call.
    fn greet(&self, name: String) -> impl Future<Output = Result<String, Status>> + Send;
}

/// A [`Greeter`] as a service.
pub(crate) struct GreeterServer<G>(Arc<G>);

impl<G> GreeterServer<G> {
    pub(crate) fn new(greeter: G) -> Self {
        Self(Arc::new(greeter))
    }
}

// Written by hand, because a derive would require `G: Clone`.
impl<G> Clone for GreeterServer<G> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<G> server::NamedService for GreeterServer<G> {
    const NAME: &'static str = "example.Greeter";
}

impl<G: Greeter> Service<Request<Body>> for GreeterServer<G> {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if request.uri().path() != GREET {
            let unknown = Status::unimplemented("no such method");
            return Box::pin(std::future::ready(Ok(unknown.into_http())));
        }
        let greeter = Arc::clone(&self.0);
        let greet = service_fn(move |request: tonic::Request<Name>| {
            let greeter = Arc::clone(&greeter);
            async move {
                let text = greeter.greet(request.into_inner().name).await?;
                Ok(tonic::Response::new(Greeting { text }))
            }
        });
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(greet, request).await)
        })
    }
}

/// A client over anything that carries gRPC: a channel, or a stack of layers around one.
#[derive(Clone)]
pub(crate) struct GreeterClient<S>(client::Grpc<S>);

impl<S> GreeterClient<S>
where
    S: GrpcService<Body>,
    S::Error: Into<BoxError>,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError> + Send> + Send + 'static,
{
    pub(crate) fn new(service: S) -> Self {
        Self(client::Grpc::new(service))
    }

    pub(crate) async fn greet(&mut self, name: &str) -> Result<tonic::Response<Greeting>, Status> {
        let not_ready = |error: S::Error| Status::unavailable(error.into().to_string());
        self.0.ready().await.map_err(not_ready)?;
        let request = tonic::Request::new(Name { name: name.into() });
        let codec = ProstCodec::<Name, Greeting>::default();
        let path = PathAndQuery::from_static(GREET);
        self.0.unary(request, path, codec).await
    }
}
