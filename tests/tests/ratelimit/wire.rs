//! HTTP messages beyond a request with a body and a response with a body.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::WebSocketUpgrade;
use axum::extract::ws::WebSocket;
use axum::response::IntoResponse;
use axum::routing::{any, get, post};
use axum::{Extension, http::HeaderMap};
use bytes::Bytes;
use futures_util::{SinkExt, StreamExt, stream};
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{Request, Response, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use tests::soon;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Message, Role};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{
    CallLimitLayer, LimitError, Policy, Quota, RateLimitHandle, RateLimitLayer, Reason,
    ThrottleLayer,
};

use crate::{client, few, layer, serve};

/// One connection, for raw bytes.
struct Wire(TcpStream);

impl Wire {
    async fn connect(url: &str) -> Self {
        let host = url.trim_start_matches("http://").trim_end_matches('/');
        Self(TcpStream::connect(host).await.unwrap())
    }

    async fn write(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
    }

    /// Reads the next head, including its empty line.
    async fn head(&mut self) -> String {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(soon(self.0.read_u8()).await.unwrap());
        }
        String::from_utf8(head).unwrap().to_ascii_lowercase()
    }

    async fn body(&mut self, len: usize) -> String {
        let mut body = vec![0; len];
        soon(self.0.read_exact(&mut body)).await.unwrap();
        String::from_utf8(body).unwrap()
    }
}

fn length(head: &str) -> usize {
    let (_, rest) = head.split_once("content-length: ").unwrap();
    rest.split("\r\n").next().unwrap().parse().unwrap()
}

/// Responses without a body get the fields, too, and the connection stays usable.
#[tokio::test]
async fn heads_and_304s_are_counted_and_framed_like_others() {
    let routes = Router::new().route("/", get(async || "hello")).route(
        "/same",
        get(async || (StatusCode::NOT_MODIFIED, [("etag", "\"a\"")])),
    );
    let url = serve(routes.layer(layer(Policy::new("all", few(4))))).await;
    let mut wire = Wire::connect(&url).await;
    for (method, path, status, left) in [
        ("HEAD", "/", 200, 3),
        ("GET", "/same", 304, 2),
        ("HEAD", "/same", 304, 1),
        ("GET", "/", 200, 0),
        ("HEAD", "/", 429, 0),
        ("GET", "/same", 429, 0),
        ("HEAD", "/same", 429, 0),
    ] {
        wire.write(&format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n"))
            .await;
        let head = wire.head().await;
        assert!(
            head.starts_with(&format!("http/1.1 {status} ")),
            "{method} {path}: {head}"
        );
        assert!(
            head.contains(&format!("ratelimit: \"all\";r={left};t=")),
            "{head}"
        );
        assert_eq!(head.contains("retry-after: "), status == 429, "{head}");
        if method == "GET" && status != 304 {
            let body = wire.body(length(&head)).await;
            assert_eq!(body.contains("quota-exceeded"), status == 429);
        }
    }
}

/// A body that is not sent costs nothing.
#[tokio::test]
async fn a_metered_body_that_answers_a_head_costs_nothing() {
    let download = async |Extension(handle): Extension<RateLimitHandle>| {
        let body = Body::from("x".repeat(300));
        Body::new(handle.meter().body(body, |data: &Bytes| data.len() as u64))
    };
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("bytes", few(1_000)).cost(100))
        .handle()
        .build()
        .unwrap();
    let url = serve(Router::new().route("/", get(download)).layer(limit)).await;
    let client = client();
    let left = async |request: reqwest::RequestBuilder| {
        let response = request.send().await.unwrap();
        let field = response.headers()["ratelimit"].to_str().unwrap().to_owned();
        assert!(response.bytes().await.is_ok());
        field
            .split([';', '='])
            .nth(2)
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    assert_eq!(left(client.head(&url)).await, 900);
    assert_eq!(left(client.head(&url)).await, 900, "put back");
    assert_eq!(left(client.get(&url)).await, 900);
    assert_eq!(left(client.head(&url)).await, 600);
}

/// A rejected client does not get `100 Continue`; an admitted client gets it when the handler reads the body.
#[tokio::test]
async fn a_rejection_comes_instead_of_100_continue() {
    let echo = async |body: String| body;
    let url = serve(
        Router::new()
            .route("/", post(echo))
            .layer(layer(Policy::new("all", few(1)))),
    )
    .await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\nexpect: 100-continue\r\n\r\n";
    let mut wire = Wire::connect(&url).await;
    wire.write(head).await;
    assert_eq!(wire.head().await, "http/1.1 100 continue\r\n\r\n");
    wire.write("hello").await;
    let answer = wire.head().await;
    assert!(answer.starts_with("http/1.1 200 "), "{answer}");
    assert_eq!(wire.body(5).await, "hello");

    let mut other = Wire::connect(&url).await;
    other.write(head).await;
    let answer = other.head().await;
    assert!(answer.starts_with("http/1.1 429 "), "{answer}");
    assert!(other.body(length(&answer)).await.contains("quota-exceeded"));
}

async fn echo(mut socket: WebSocket) {
    while let Some(Ok(message)) = socket.recv().await {
        if socket.send(message).await.is_err() {
            return;
        }
    }
}

#[tokio::test]
async fn a_websocket_is_one_request_and_a_rejected_handshake_an_answer() {
    let handler = async |upgrade: WebSocketUpgrade| upgrade.on_upgrade(echo).into_response();
    let url = serve(
        Router::new()
            .route("/", any(handler))
            .layer(layer(Policy::new("all", few(1)))),
    )
    .await;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    let handshake = || {
        Request::get(&url)
            .header("connection", "upgrade")
            .header("upgrade", "websocket")
            .header("sec-websocket-version", "13")
            .header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==")
            .body(Body::empty())
            .unwrap()
    };
    let mut response = soon(client.request(handshake())).await.unwrap();
    assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert!(response.headers().contains_key("ratelimit"));
    let upgraded = soon(hyper::upgrade::on(&mut response)).await.unwrap();
    let io = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Client, None).await;
    for number in 0..5 {
        let message = Message::text(format!("message {number}"));
        socket.send(message.clone()).await.unwrap();
        assert_eq!(soon(socket.next()).await.unwrap().unwrap(), message);
    }
    let rejected = soon(client.request(handshake())).await.unwrap();
    assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
    let body = rejected.into_body().collect().await.unwrap().to_bytes();
    assert!(String::from_utf8_lossy(&body).contains("quota-exceeded"));
}

/// A hyper server for HTTP/2 and HTTP/1.1 in front of a tower service.
async fn hyper_server<S, B>(service: S) -> String
where
    S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible>
        + Clone
        + Send
        + 'static,
    S::Future: Send,
    B: hyper::body::Body<Data = Bytes, Error = Infallible> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (socket, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            tokio::spawn(async move {
                let server = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                let served = server.serve_connection(TokioIo::new(socket), service).await;
                served.map_err(|error| error.to_string())
            });
        }
    });
    url
}

#[tokio::test]
async fn trailers_pass_over_http_2_and_rejections_have_none() {
    let inner = service_fn(async |_: Request<Incoming>| {
        let mut trailers = HeaderMap::new();
        trailers.insert("checksum", "7".parse().unwrap());
        let frames = [Frame::data(Bytes::from("hello")), Frame::trailers(trailers)];
        let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Infallible>)));
        Ok::<_, Infallible>(Response::new(BodyExt::boxed(body)))
    });
    let limit = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", few(1)))
        .rejection(|rejection| {
            let body = BodyExt::boxed(Full::new(Bytes::from("no")));
            let mut response = Response::new(body);
            *response.status_mut() = rejection.status();
            response
        })
        .build()
        .unwrap();
    let url = hyper_server(limit.layer(inner)).await;
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new())
        .http2_only(true)
        .build_http();
    for (status, text, checksum) in [(200, "hello", Some("7")), (429, "no", None)] {
        let response = soon(client.get(url.parse().unwrap())).await.unwrap();
        assert_eq!(response.status(), status);
        assert!(response.headers().contains_key("ratelimit"));
        let whole = soon(response.into_body().collect()).await.unwrap();
        let trailers = whole
            .trailers()
            .and_then(|all| all.get("checksum"))
            .cloned();
        assert_eq!(whole.to_bytes(), text);
        assert_eq!(
            trailers.as_ref().map(|value| value.to_str().unwrap()),
            checksum
        );
    }
}

/// Counts requests, and answers each with the number of requests before it.
async fn counting() -> (String, Arc<AtomicUsize>) {
    let calls = Arc::<AtomicUsize>::default();
    let counted = Arc::clone(&calls);
    let handler = move || async move { counted.fetch_add(1, SeqCst).to_string() };
    (serve(Router::new().route("/", get(handler))).await, calls)
}

/// A burst of two requests, then one request each 50 ms.
fn paced<Req>() -> ThrottleLayer<Req> {
    CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("out", Quota::per_second(20).burst(2)))
        .waiting()
        .build()
        .unwrap()
}

/// Real time: the test can only assert that no request passes early.
#[tokio::test]
async fn clients_of_reqwest_and_hyper_wait_for_their_turn() {
    let (url, calls) = counting().await;
    let started = Instant::now();
    let reqwest = paced().layer(client());
    let get = || client().get(&url).build().unwrap();
    let sent = (0..6).map(|_| tokio::spawn(reqwest.clone().oneshot(get())));
    for call in sent.collect::<Vec<_>>() {
        assert_eq!(soon(call).await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(calls.load(SeqCst), 6);

    let started = Instant::now();
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let hyper = paced().layer(client);
    let get = || Request::get(&url).body(Full::default()).unwrap();
    let sent = (0..6).map(|_| tokio::spawn(hyper.clone().oneshot(get())));
    for call in sent.collect::<Vec<_>>() {
        assert_eq!(soon(call).await.unwrap().unwrap().status(), StatusCode::OK);
    }
    assert!(started.elapsed() >= Duration::from_millis(200));
    assert_eq!(calls.load(SeqCst), 12);
}

/// A rejected client sends nothing to the server.
#[tokio::test]
async fn a_client_behind_a_limit_of_its_own_does_not_bother_the_server() {
    let (url, calls) = counting().await;
    let limit = CallLimitLayer::builder(Memory::default())
        .limit(
            Policy::new("per-host", few(2)).by_request(|request: &reqwest::Request| {
                request.url().host_str().map(str::to_owned)
            }),
        )
        .build()
        .unwrap();
    let mut service = limit.layer(client());
    let get = || client().get(&url).build().unwrap();
    for _ in 0..2 {
        let response = service.ready().await.unwrap().call(get()).await.unwrap();
        assert_eq!(response.status(), StatusCode::OK);
    }
    for _ in 0..3 {
        let Err(LimitError::RateLimited(rejected)) =
            service.ready().await.unwrap().call(get()).await
        else {
            panic!("it was sent")
        };
        assert_eq!(rejected.reason(), Reason::Quota);
    }
    assert_eq!(calls.load(SeqCst), 2);
}
