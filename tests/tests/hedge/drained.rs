//! The connection of an attempt that fails while another attempt is in flight.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Request, StatusCode};
use hyper_util::client::legacy::Client;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tests::soon;
use tokio::net::TcpListener;
use tokio::sync::Barrier;
use tokio::time::sleep;
use tower::{Layer, Service, ServiceExt};
use tower_hedge_latency::{Drain, HedgeLayer};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Fails one of the first two requests with a slow body. The next two requests wait for each other.
struct Server {
    url: String,
    connections: Arc<AtomicUsize>,
}

impl Server {
    async fn start(failing: usize) -> Self {
        let connections = Arc::<AtomicUsize>::default();
        let (requests, both) = (AtomicUsize::new(0), Barrier::new(2));
        let shared = Arc::new((requests, both));
        let handler = move || {
            let shared = Arc::clone(&shared);
            async move {
                let (requests, both) = &*shared;
                match requests.fetch_add(1, SeqCst) + 1 {
                    n if n == failing => {
                        // The first request fails after the second has arrived.
                        sleep(ms(if n == 1 { 80 } else { 0 })).await;
                        slow_failure()
                    }
                    1 | 2 => {
                        sleep(ms(150)).await;
                        StatusCode::OK.into_response()
                    }
                    _ => {
                        both.wait().await;
                        StatusCode::OK.into_response()
                    }
                }
            }
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let router: Router = Router::new().route("/", get(handler));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                count.fetch_add(1, SeqCst);
                let router = router.clone();
                let service =
                    hyper::service::service_fn(move |request| router.clone().call(request));
                let connection = hyper::server::conn::http1::Builder::new();
                tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
            }
        });
        Self { url, connections }
    }
}

fn slow_failure() -> Response {
    let frames = stream::iter(0..5).then(|_| async {
        sleep(ms(10)).await;
        Ok::<_, Infallible>(Bytes::from_static(b"sorry"))
    });
    let response = Response::builder().status(StatusCode::SERVICE_UNAVAILABLE);
    response.body(Body::from_stream(frames)).unwrap()
}

async fn call<S>(service: S, url: &str)
where
    S: Service<Request<Body>, Response = http::Response<hyper::body::Incoming>>,
    S::Error: std::fmt::Debug,
{
    let request = Request::get(url).body(Body::empty()).unwrap();
    let response = soon(service.oneshot(request)).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
}

/// The number of connections that serve the four requests, of which two are concurrent.
async fn connections(failing: usize, drain: Option<Drain>) -> usize {
    let server = Server::start(failing).await;
    let client = || -> Client<_, Body> { Client::builder(TokioExecutor::new()).build_http() };
    let hedge = HedgeLayer::builder().fixed(ms(20));
    macro_rules! run {
        ($layer:expr) => {{
            let service = $layer.http().build().unwrap().layer(client());
            call(service.clone(), &server.url).await;
            // Time to read all bodies.
            sleep(ms(150)).await;
            let (one, other) = (service.clone(), service);
            tokio::join!(call(one, &server.url), call(other, &server.url));
        }};
    }
    match drain {
        Some(drain) => run!(hedge.drain(drain)),
        None => run!(hedge),
    }
    server.connections.load(SeqCst)
}

#[tokio::test]
async fn the_connection_of_a_failed_attempt_is_used_again_once_it_is_drained() {
    for failing in [1, 2] {
        assert_eq!(
            connections(failing, Some(Drain::default())).await,
            2,
            "{failing}"
        );
        assert_eq!(connections(failing, None).await, 3, "{failing}");
    }
}

#[tokio::test]
async fn a_failure_beyond_the_limits_is_dropped() {
    for drain in [
        Drain::default().body_limit(10),
        Drain::default().time_limit(ms(20)),
        Drain::default().capacity(0),
    ] {
        assert_eq!(connections(2, Some(drain.clone())).await, 3, "{drain:?}");
    }
}
