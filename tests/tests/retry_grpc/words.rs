//! A gRPC service and its client, written by hand, so that the tests need no code generator.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::{Stream, StreamExt, stream};
use http::uri::PathAndQuery;
use http::{HeaderMap, Request, Response};
use http_body_util::StreamBody;
use hyper::body::Frame;
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::body::Body;
use tonic::client::GrpcService;
use tonic::transport::{Channel, Endpoint, Server};
use tonic::{Code, Status, Streaming, client, server};
use tonic_prost::ProstCodec;
use tower::{BoxError, Service, service_fn};

pub(crate) const ECHO: &str = "/test.Words/Echo";
pub(crate) const JOIN: &str = "/test.Words/Join";
pub(crate) const LETTERS: &str = "/test.Words/Letters";

/// A message with one string.
#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// How the service treats a call.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reply {
    /// Answers with the requested words.
    Good,
    /// Answers immediately with this status and pushback.
    Early(Code, Option<&'static str>),
    /// Answers UNAVAILABLE after the end of the request stream.
    Late,
    /// Answers UNAVAILABLE after the response's head.
    Begun,
    /// Answers with this HTTP status, without gRPC fields.
    Bare(u16),
    /// Never answers.
    Never,
}

/// Echoes, joins and splits words.
#[derive(Clone)]
pub(crate) struct Words {
    reply: fn(usize) -> Reply,
    seen: Arc<Mutex<Vec<HeaderMap>>>,
}

impl Words {
    /// Treats the 1-based n-th call as `reply(n)`.
    pub(crate) fn new(reply: fn(usize) -> Reply) -> Self {
        let seen = Arc::default();
        Self { reply, seen }
    }

    /// Starts a server with this service.
    pub(crate) async fn start(reply: fn(usize) -> Reply) -> (Self, Channel) {
        let words = Self::new(reply);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        words.serve(listener);
        (words, channel(url))
    }

    pub(crate) fn serve(&self, listener: TcpListener) {
        let server = Server::builder().add_service(self.clone());
        tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    }

    /// The number of calls.
    pub(crate) fn calls(&self) -> usize {
        self.seen.lock().unwrap().len()
    }

    /// The values of a field, one for each call.
    pub(crate) fn field(&self, name: &str) -> Vec<Option<String>> {
        let text = |fields: &HeaderMap| Some(fields.get(name)?.to_str().unwrap().to_owned());
        self.seen.lock().unwrap().iter().map(text).collect()
    }

    async fn answer(self, request: Request<Body>) -> Response<Body> {
        let number = {
            let mut seen = self.seen.lock().unwrap();
            seen.push(request.headers().clone());
            seen.len()
        };
        let is_timeout = match (self.reply)(number) {
            Reply::Good => false,
            Reply::Late => true,
            Reply::Early(code, pushback) => return early(code, pushback),
            Reply::Begun => return begun(),
            Reply::Bare(status) => {
                let response = Response::builder().status(status);
                let page = http_body_util::Full::<Bytes>::from("<h1>sorry</h1>");
                return response.body(Body::new(page)).unwrap();
            }
            Reply::Never => std::future::pending().await,
        };
        let late = move |text| match is_timeout {
            true => Err(Status::unavailable("late")),
            false => Ok(tonic::Response::new(Text { text })),
        };
        let mut grpc = server::Grpc::new(ProstCodec::<Text, Text>::default());
        let path = request.uri().path().to_owned();
        match path.as_str() {
            ECHO => {
                let echo =
                    |request: tonic::Request<Text>| async move { late(request.into_inner().text) };
                grpc.unary(service_fn(echo), request).await
            }
            JOIN => {
                let join = |request: tonic::Request<Streaming<Text>>| async move {
                    let mut texts = request.into_inner();
                    let mut all = String::new();
                    while let Some(text) = texts.message().await? {
                        all.push_str(&text.text);
                    }
                    late(all)
                };
                grpc.client_streaming(service_fn(join), request).await
            }
            LETTERS => {
                let letters = |request: tonic::Request<Text>| async move {
                    let letters: Vec<_> = request.into_inner().text.chars().collect();
                    let text = |letter: char| {
                        Ok(Text {
                            text: letter.to_string(),
                        })
                    };
                    Ok(tonic::Response::new(stream::iter(letters).map(text)))
                };
                grpc.server_streaming(service_fn(letters), request).await
            }
            path => panic!("no such method: {path}"),
        }
    }
}

/// A response without messages; tonic puts the status into the head.
fn early(code: Code, pushback: Option<&'static str>) -> Response<Body> {
    let mut status = Status::new(code, "early");
    if let Some(pushback) = pushback {
        let fields = status.metadata_mut();
        fields.insert("grpc-retry-pushback-ms", pushback.parse().unwrap());
    }
    status.into_http()
}

/// A head, and then the status.
fn begun() -> Response<Body> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", "14".parse().unwrap());
    let trailers = stream::once(async {
        // Without this the server might send both parts together, although the client always sees two frames.
        tokio::task::yield_now().await;
        Ok::<_, Infallible>(Frame::<Bytes>::trailers(trailers))
    });
    let body = Body::new(StreamBody::new(trailers));
    let response = Response::builder().header("content-type", "application/grpc");
    response.body(body).unwrap()
}

impl server::NamedService for Words {
    const NAME: &'static str = "test.Words";
}

impl Service<Request<Body>> for Words {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let words = self.clone();
        Box::pin(async move { Ok(words.answer(request).await) })
    }
}

pub(crate) fn channel(url: String) -> Channel {
    Endpoint::from_shared(url).unwrap().connect_lazy()
}

/// A client over any service that carries gRPC.
pub(crate) struct Client<S>(client::Grpc<S>);

impl<S> Client<S>
where
    S: GrpcService<Body>,
    S::ResponseBody: http_body::Body<Data = Bytes, Error: Into<BoxError>> + Send + 'static,
{
    pub(crate) fn new(service: S) -> Self {
        Self(client::Grpc::new(service))
    }

    async fn ready(&mut self) -> &mut client::Grpc<S> {
        let ready = self.0.ready().await.map_err(Into::into);
        ready.unwrap_or_else(|error: BoxError| panic!("not ready: {error}"));
        &mut self.0
    }

    pub(crate) async fn echo(&mut self, text: &str) -> Result<String, Status> {
        self.echo_within(None, text).await
    }

    pub(crate) async fn echo_within(
        &mut self,
        timeout: Option<Duration>,
        text: &str,
    ) -> Result<String, Status> {
        let mut request = tonic::Request::new(Text {
            text: text.to_owned(),
        });
        if let Some(timeout) = timeout {
            request.set_timeout(timeout);
        }
        let path = PathAndQuery::from_static(ECHO);
        let call = self.ready().await.unary(request, path, codec());
        let response: tonic::Response<Text> = tests::soon(call).await?;
        Ok(response.into_inner().text)
    }

    pub(crate) async fn join(
        &mut self,
        texts: impl Stream<Item = String> + Send + 'static,
    ) -> Result<String, Status> {
        let texts = tonic::Request::new(texts.map(|text| Text { text }));
        let path = PathAndQuery::from_static(JOIN);
        let call = self.ready().await.client_streaming(texts, path, codec());
        let response: tonic::Response<Text> = tests::soon(call).await?;
        Ok(response.into_inner().text)
    }

    pub(crate) async fn letters(&mut self, text: &str) -> Result<Vec<String>, Status> {
        let request = tonic::Request::new(Text {
            text: text.to_owned(),
        });
        let path = PathAndQuery::from_static(LETTERS);
        let call = self.ready().await.server_streaming(request, path, codec());
        let mut letters: Streaming<Text> = tests::soon(call).await?.into_inner();
        let mut all = Vec::new();
        while let Some(letter) = letters.message().await? {
            all.push(letter.text);
        }
        Ok(all)
    }
}

fn codec() -> ProstCodec<Text, Text> {
    ProstCodec::default()
}
