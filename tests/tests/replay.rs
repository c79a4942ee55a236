//! Streaming bodies, retried and hedged over real sockets.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, Response, StatusCode, Uri, Version};
use axum::response::IntoResponse;
use axum::routing::any;
use bytes::Bytes;
use futures_util::future::join;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Body as HttpBody, Frame};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tokio::time::{sleep, timeout};
use tower::{Layer, Service, ServiceExt};
use tower_attempt::{Attempt, ReplayBody, ReplayableBody, ReplayableRequest};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::{Backoff, RetryLayer};

/// The time of an answer.
#[derive(Clone, Copy, Debug)]
enum When {
    /// Before the server reads the body.
    Early,
    /// After half of the body.
    Midway,
    /// After all of the body.
    Late,
    /// Never, although the server reads all of the body.
    Never,
}

/// Fails its first answers at these times, and keeps every body that arrived completely.
#[derive(Clone)]
struct Server {
    failures: Arc<Mutex<Vec<When>>>,
    complete: Arc<Mutex<Vec<Bytes>>>,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(failures: &[When]) -> (Self, Uri) {
        let server = Self {
            failures: Arc::new(Mutex::new(failures.to_vec())),
            complete: Arc::default(),
            requests: Arc::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router = Router::new().route("/", any(Self::answer));
        let router = router.with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, router).await });
        (server, url.parse().unwrap())
    }

    async fn answer(State(server): State<Self>, request: Request<Body>) -> Response<Body> {
        server.requests.fetch_add(1, SeqCst);
        let failure = {
            let mut failures = server.failures.lock().unwrap();
            (!failures.is_empty()).then(|| failures.remove(0))
        };
        let mut body = request.into_body();
        match failure {
            Some(When::Early) => return StatusCode::SERVICE_UNAVAILABLE.into_response(),
            Some(When::Midway) => {
                let mut read = 0;
                while read < LENGTH / 2 {
                    match body.frame().await {
                        Some(Ok(frame)) => read += frame.into_data().map_or(0, |data| data.len()),
                        _ => break,
                    }
                }
                return StatusCode::SERVICE_UNAVAILABLE.into_response();
            }
            _ => {}
        }
        let Ok(body) = body.collect().await else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        server.complete.lock().unwrap().push(body.to_bytes());
        match failure {
            Some(When::Never) => std::future::pending().await,
            Some(_) => StatusCode::SERVICE_UNAVAILABLE.into_response(),
            None => StatusCode::OK.into_response(),
        }
    }

    /// The number of complete bodies; each must equal `content`.
    fn complete(&self, content: &[u8]) -> usize {
        let complete = self.complete.lock().unwrap();
        assert!(complete.iter().all(|body| body == content), "truncated");
        complete.len()
    }
}

const LENGTH: usize = 200 * 1024;
const FRAME: usize = 10 * 1024;
const LARGE: usize = 1024 * 1024;

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|n| n.to_le_bytes()[n % 3]).collect()
}

/// One frame each millisecond.
fn streaming(length: usize) -> impl HttpBody<Data = Bytes, Error = io::Error> + Unpin {
    streaming_once(length, || true)
}

/// The first frame; the others follow when `ready` fires.
fn streaming_once(
    length: usize,
    ready: impl Fn() -> bool + Send + 'static,
) -> impl HttpBody<Data = Bytes, Error = io::Error> + Unpin {
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        for frame in content(length).chunks(FRAME) {
            let frame = Frame::data(Bytes::copy_from_slice(frame));
            if sender.send(Ok::<_, io::Error>(frame)).await.is_err() {
                return;
            }
            sleep(Duration::from_millis(1)).await;
            while !ready() {
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
    StreamBody::new(tokio_stream::wrappers::ReceiverStream::new(receiver))
}

fn post<B>(url: &Uri, body: B) -> Request<B> {
    let request = Request::post(url).header("idempotency-key", "7");
    request.body(body).unwrap()
}

/// A PUT, because a POST with a key is not hedged.
fn put<B>(url: &Uri, body: B) -> Request<B> {
    Request::put(url).body(body).unwrap()
}

fn client<B>(http2: bool) -> Client<HttpConnector, B>
where
    B: HttpBody + Send,
    B::Data: Send,
{
    let mut builder = Client::builder(TokioExecutor::new());
    builder.http2_only(http2).build_http()
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), future)
        .await
        .expect("hangs")
}

/// Sends a request in up to three attempts, with this replay limit.
async fn repeated<S, B, R>(client: S, request: Request<B>, limit: usize) -> Option<StatusCode>
where
    S: Service<Request<B>, Response = Response<R>, Error: 'static> + Clone,
    B: ReplayableBody,
{
    let builder = RetryLayer::builder().backoff(Backoff::none());
    let layer = builder.http().replay_limit(limit).build().unwrap();
    let outcome = layer.layer(client).oneshot(request).await;
    outcome.ok().map(|response| response.status())
}

#[tokio::test]
async fn a_body_within_the_limit_is_resent_byte_by_byte() {
    for http2 in [false, true] {
        for when in [When::Early, When::Midway, When::Late] {
            let (server, url) = Server::start(&[when, when]).await;
            let request = post(&url, Body::new(streaming(LENGTH)));
            let status = soon(repeated(client(http2), request, LARGE)).await;
            assert_eq!(status, Some(StatusCode::OK), "{when:?}, HTTP/2: {http2}");
            let late = 2 * usize::from(matches!(when, When::Late));
            assert_eq!(server.complete(&content(LENGTH)), 1 + late);
        }
    }
}

/// Bodies that a server receives cannot be built from parts.
#[tokio::test]
async fn a_replay_body_is_resent_byte_by_byte() {
    for http2 in [false, true] {
        for when in [When::Early, When::Midway, When::Late] {
            let (server, url) = Server::start(&[when]).await;
            let request = post(&url, ReplayBody::new(streaming(LENGTH)));
            let status = soon(repeated(client(http2), request, LARGE)).await;
            assert_eq!(status, Some(StatusCode::OK), "{when:?}, HTTP/2: {http2}");
            assert!(server.complete(&content(LENGTH)) >= 1);
        }
    }
}

#[tokio::test]
async fn the_layers_resend_a_streaming_body() {
    let length = 40 * 1024;
    for http2 in [false, true] {
        for when in [When::Early, When::Midway, When::Late] {
            let (server, url) = Server::start(&[when]).await;
            let backoff = Backoff::constant(Duration::from_millis(1));
            let retry = RetryLayer::builder().backoff(backoff).http().build();
            let hedge = HedgeLayer::builder()
                .fixed(Duration::from_secs(1))
                .http()
                .hedge_unsafe_if(|_| true);
            let stack = hedge.build().unwrap().layer(client(http2));
            let stack = retry.unwrap().layer(stack);
            let request = post(&url, Body::new(streaming(length)));
            let response = soon(stack.oneshot(request)).await.unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            assert!(server.complete(&content(length)) >= 1);
        }
    }
}

#[tokio::test]
async fn reqwest_resends_a_streaming_body() {
    let length = 40 * 1024;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    for when in [When::Early, When::Midway, When::Late] {
        let (server, url) = Server::start(&[when]).await;
        let hedge = HedgeLayer::builder()
            .fixed(Duration::from_secs(1))
            .http()
            .hedge_unsafe_if(|_| true);
        let stack = hedge.build().unwrap().layer(client.clone());
        let request = client.put(url.to_string());
        let request = request.body(reqwest::Body::wrap(streaming(length)));
        let call = RetryLayer::http()
            .layer(stack)
            .oneshot(request.build().unwrap());
        let response = soon(call).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(server.complete(&content(length)) >= 1);
    }
}

/// 200 KiB against the default limit of 64 KiB: an early failure is retried, a failure beyond the limit is not.
#[tokio::test]
async fn a_body_beyond_the_limit_arrives_whole_or_not_at_all() {
    for http2 in [false, true] {
        for when in [When::Early, When::Midway, When::Late] {
            let (server, url) = Server::start(&[when]).await;
            let stack = RetryLayer::http().layer(client(http2));
            let request = post(&url, Body::new(streaming(LENGTH)));
            let response = soon(stack.oneshot(request)).await;
            let complete = server.complete(&content(LENGTH));
            let status = response.map(|response| response.status());
            match (when, status) {
                (When::Late, status) => {
                    assert_eq!(status.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
                    assert_eq!(complete, 1);
                }
                (_, Ok(StatusCode::OK)) => assert_eq!(complete, 1),
                (_, Ok(status)) => {
                    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                    assert_eq!(complete, 0);
                }
                (_, Err(_)) => assert_eq!(complete, 0),
            }
        }
    }
}

#[tokio::test]
async fn two_live_attempts_send_the_whole_body_each() {
    for http2 in [false, true] {
        let (server, url) = Server::start(&[]).await;
        let mut request = post(&url, Body::new(streaming(LENGTH)));
        let saved = request.save(LARGE).unwrap();
        let client = client(http2);
        let hedge = async {
            sleep(Duration::from_millis(8)).await;
            let request: Request<Body> = Request::again(&saved, Attempt::hedge(2)).unwrap();
            client.clone().oneshot(request).await
        };
        let (one, two) = soon(join(client.clone().oneshot(request), hedge)).await;
        assert_eq!(one.unwrap().status(), StatusCode::OK);
        assert_eq!(two.unwrap().status(), StatusCode::OK);
        assert_eq!(server.complete(&content(LENGTH)), 2);
    }
}

#[tokio::test]
async fn a_streaming_body_is_hedged() {
    let length = 60 * 1024;
    for http2 in [false, true] {
        let (server, url) = Server::start(&[When::Never]).await;
        // The hedge starts while the first attempt still streams.
        let hedge = HedgeLayer::builder()
            .fixed(Duration::from_millis(3))
            .http()
            .hedge_unsafe_if(|_| true);
        let stack = hedge.build().unwrap().layer(client(http2));
        let requests = Arc::clone(&server.requests);
        let body = streaming_once(length, move || requests.load(SeqCst) == 2);
        let request = put(&url, Body::new(body));
        let response = soon(stack.oneshot(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert!(server.complete(&content(length)) >= 1);
    }
}

/// The younger attempt fails, and the caller does not notice.
#[tokio::test]
async fn a_hedge_that_is_interrupted_leaves_the_first_attempt_alone() {
    for http2 in [false, true] {
        let (server, url) = Server::start(&[]).await;
        let hedge = HedgeLayer::builder()
            .fixed(Duration::from_millis(3))
            .http()
            .hedge_unsafe_if(|_| true);
        let stack = hedge.build().unwrap().layer(client(http2));
        let requests = Arc::clone(&server.requests);
        let body = streaming_once(LENGTH, move || requests.load(SeqCst) == 2);
        let request = put(&url, Body::new(body));
        let response = soon(stack.oneshot(request)).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(server.complete(&content(LENGTH)), 1);
        assert_eq!(server.requests.load(SeqCst), 2);
    }
}

/// A copy reports the same size hint as the original body.
#[tokio::test]
async fn a_known_length_is_sent_with_each_attempt() {
    let lengths = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lengths);
    let handler = move |request: Request<Body>| async move {
        assert_eq!(request.version(), Version::HTTP_11);
        let length = request.headers().get("content-length").cloned();
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, content(LENGTH));
        seen.lock().unwrap().push(length.unwrap());
        StatusCode::SERVICE_UNAVAILABLE
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let router: Router = Router::new().route("/", any(handler));
    tokio::spawn(async move { axum::serve(listener, router).await });

    let body = Body::new(Sized(Body::new(streaming(LENGTH)), LENGTH as u64));
    let request = post(&url.parse().unwrap(), body);
    let status = soon(repeated(client(false), request, LARGE)).await;
    assert_eq!(status, Some(StatusCode::SERVICE_UNAVAILABLE));
    assert_eq!(*lengths.lock().unwrap(), ["204800"; 3]);
}

/// A stream of known size.
struct Sized(Body, u64);

impl HttpBody for Sized {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let polled = std::pin::Pin::new(&mut self.0).poll_frame(cx);
        if let std::task::Poll::Ready(Some(Ok(frame))) = &polled {
            self.1 -= frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        hyper::body::SizeHint::with_exact(self.1)
    }
}
