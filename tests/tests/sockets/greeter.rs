//! A gRPC service and its client, written by hand, so that the tests need no code generator.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};

use futures_util::future::BoxFuture;
use http::uri::PathAndQuery;
use http::{Request, Response};
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::{Status, client, server};
use tonic_prost::ProstCodec;
use tower::{BoxError, Service, service_fn};

pub(crate) const PATH: &str = "/test.Greeter/Greet";

/// A message with one string.
#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// Greets a caller by name, and rejects an empty name. `busy` is unavailable, and `third` waits for the third request.
#[derive(Clone)]
pub(crate) struct Greeter {
    requests: Arc<AtomicUsize>,
}

impl Greeter {
    pub(crate) fn new(requests: Arc<AtomicUsize>) -> Self {
        Self { requests }
    }
}

impl server::NamedService for Greeter {
    const NAME: &'static str = "test.Greeter";
}

impl Service<Request<Body>> for Greeter {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let count = self.requests.fetch_add(1, SeqCst) + 1;
        let greet = service_fn(move |request: tonic::Request<Text>| async move {
            let name = request.into_inner().text;
            match name.as_str() {
                "" => return Err(Status::invalid_argument("no name")),
                "busy" => return Err(Status::unavailable("busy")),
                "third" if count != 3 => std::future::pending().await,
                _ => {}
            }
            let text = format!("hello, {name}");
            Ok(tonic::Response::new(Text { text }))
        });
        Box::pin(async move {
            let mut grpc = server::Grpc::new(ProstCodec::default());
            Ok(grpc.unary(greet, request).await)
        })
    }
}

/// Calls the greeter over any service that carries gRPC.
pub(crate) async fn greet<S>(service: S, name: &str) -> Result<String, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: hyper::body::Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static,
{
    greet_with(service, name, ()).await
}

/// Calls the greeter with `own` in the request's extensions.
pub(crate) async fn greet_with<S>(
    service: S,
    name: &str,
    own: impl Clone + Send + Sync + 'static,
) -> Result<String, Status>
where
    S: GrpcService<Body>,
    S::ResponseBody: hyper::body::Body<Data = bytes::Bytes, Error: Into<BoxError>> + Send + 'static,
{
    let mut grpc = client::Grpc::new(service);
    grpc.ready()
        .await
        .map_err(|_| Status::unavailable("not ready"))?;
    let text = name.to_owned();
    let mut request = tonic::Request::new(Text { text });
    request.extensions_mut().insert(own);
    let path = PathAndQuery::from_static(PATH);
    let response = grpc
        .unary(request, path, ProstCodec::<Text, Text>::default())
        .await?;
    Ok(response.into_inner().text)
}
