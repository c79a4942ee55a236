//! The HTTP and gRPC clients in common use, each under a retry layer.

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::routing::any;
use bytes::Bytes;
use futures_util::stream;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::Frame;
use hyper_util::client::legacy;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::timeout::Timeout;
use tower::{BoxError, Layer, Service, ServiceExt};
use tower_attempt::{HttpResponse, ReplayableRequest};
use tower_jitter_retry::{Http, Observed, RetryInfo, RetryLayer};

use crate::soon;

/// A client library's client, with its own retries switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// The legacy client of hyper-util.
    Hyper {
        /// Whether the client uses HTTP/2 instead of HTTP/1.
        http2: bool,
    },
    /// The client of reqwest.
    Reqwest {
        /// Whether the client uses HTTP/2 instead of HTTP/1.
        http2: bool,
    },
    /// The channel of tonic.
    Tonic,
}

/// A request's body.
#[derive(Clone, Copy, Debug)]
pub enum Payload {
    /// A body in memory.
    Memory(&'static str),
    /// A body that streams byte by byte.
    Stream(&'static str),
    /// A body that fails after these bytes.
    Broken(&'static str),
}

/// The error of a broken body.
pub const BROKEN: &str = "the source of the body is gone";

/// A response.
#[derive(Debug)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The layer's report on the call.
    pub info: Option<RetryInfo>,
    /// The body, or the error that ended it.
    pub body: Result<Bytes, BoxError>,
}

impl Client {
    /// All clients that use HTTP/2.
    pub const HTTP_2: [Self; 3] = [
        Self::Hyper { http2: true },
        Self::Reqwest { http2: true },
        Self::Tonic,
    ];
    /// All clients that use HTTP/1.
    pub const HTTP_1: [Self; 2] = [Self::Hyper { http2: false }, Self::Reqwest { http2: false }];
    /// All clients.
    pub const ALL: [Self; 5] = [
        Self::HTTP_1[0],
        Self::HTTP_1[1],
        Self::HTTP_2[0],
        Self::HTTP_2[1],
        Self::HTTP_2[2],
    ];

    /// Sends a request through the layer; see [`call`].
    ///
    /// # Errors
    ///
    /// Returns the client's error.
    pub async fn send(
        self,
        layer: &RetryLayer<Http, Observed>,
        boxed: bool,
        method: Method,
        url: &str,
        payload: Payload,
    ) -> Result<Answer, BoxError> {
        let request = Request::builder().method(method).uri(url);
        match self {
            Self::Hyper { http2 } => {
                let client = hyper(http2);
                let request = request.body(axum::body::Body::new(payload.body()))?;
                Answer::read(call(layer, boxed, client, request).await?).await
            }
            Self::Reqwest { http2 } => {
                let client = reqwest(http2);
                let request = request.body(match payload {
                    Payload::Memory(content) => content.into(),
                    _ => reqwest::Body::wrap(payload.body()),
                })?;
                let response = call(layer, boxed, client, request.try_into()?).await?;
                Answer::read(Response::<reqwest::Body>::from(response)).await
            }
            Self::Tonic => {
                let channel = tonic::transport::Endpoint::from_shared(url.to_owned())?;
                let channel = channel.connect_lazy();
                let request = request.body(tonic::body::Body::new(payload.body()))?;
                Answer::read(call(layer, boxed, channel, request).await?).await
            }
        }
    }
}

/// Builds hyper-util's client.
#[must_use]
pub fn hyper(http2: bool) -> legacy::Client<legacy::connect::HttpConnector, axum::body::Body> {
    let mut builder = legacy::Client::builder(TokioExecutor::new());
    builder.retry_canceled_requests(false);
    builder.http2_only(http2).build_http()
}

/// Builds reqwest's client.
#[must_use]
pub fn reqwest(http2: bool) -> reqwest::Client {
    let builder = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never());
    let builder = match http2 {
        true => builder.http2_prior_knowledge(),
        false => builder,
    };
    builder.build().unwrap()
}

impl Payload {
    fn body(self) -> BoxBody<Bytes, io::Error> {
        let (content, end) = match self {
            Self::Memory(content) => {
                let body = Full::new(Bytes::from_static(content.as_bytes()));
                return body.map_err(|never: Infallible| match never {}).boxed();
            }
            Self::Stream(content) => (content, None),
            Self::Broken(content) => (content, Some(Err(io::Error::other(BROKEN)))),
        };
        let bytes = content.bytes().map(|byte| Bytes::copy_from_slice(&[byte]));
        let frames = bytes.map(|byte| Ok(Frame::data(byte))).chain(end);
        let frames = stream::unfold(frames.collect::<Vec<_>>().into_iter(), |mut frames| async {
            // The client gets time to send each byte.
            tokio::time::sleep(Duration::from_millis(1)).await;
            Some((frames.next()?, frames))
        });
        StreamBody::new(frames).boxed()
    }
}

impl Answer {
    async fn read<B>(response: Response<B>) -> Result<Self, BoxError>
    where
        B: http_body::Body<Error: Into<BoxError>>,
    {
        let status = response.status();
        let info = response.extensions().get().copied();
        let body = response.into_body().collect().await.map_err(Into::into);
        let body = body.map(http_body_util::Collected::to_bytes);
        Ok(Self { status, info, body })
    }
}

/// Calls a client through the layer. With `boxed`, a timeout layer below boxes the errors.
///
/// # Errors
///
/// Returns the client's error.
pub async fn call<S, Req, Res>(
    layer: &RetryLayer<Http, Observed>,
    boxed: bool,
    client: S,
    request: Req,
) -> Result<Res, BoxError>
where
    S: Service<Req, Response = Res, Error: Into<BoxError> + 'static> + Clone,
    Req: ReplayableRequest,
    Res: HttpResponse,
{
    let answer = async {
        match boxed {
            false => layer
                .layer(client)
                .oneshot(request)
                .await
                .map_err(Into::into),
            true => {
                let client = Timeout::new(client, Duration::from_secs(60));
                layer.layer(client).oneshot(request).await
            }
        }
    };
    soon(answer).await
}

/// Serves HTTP/1 and HTTP/2, and echoes each request's body.
pub fn echo(listener: TcpListener) {
    let router: Router = Router::new().route("/", any(|body: Bytes| async move { body }));
    tokio::spawn(async move { axum::serve(listener, router).await });
}

/// Whether the text of an error, or of one of its sources, contains `text`.
#[must_use]
pub fn mentions(error: &BoxError, text: &str) -> bool {
    let mut next: Option<&dyn std::error::Error> = Some(&**error);
    while let Some(error) = next {
        if error.to_string().contains(text) {
            return true;
        }
        next = error.source();
    }
    false
}
