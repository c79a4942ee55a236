//! Hedges over real connections: the fate of the losers and of their connections.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt};
use tower_hedge_latency::{Attempt, Drain, HedgeCounts, HedgeInfo, HedgeLayer, HedgeLayerBuilder};

const TRIGGER: Duration = Duration::from_millis(20);
const LONG: Duration = Duration::from_secs(10);

type Body = Empty<Bytes>;

/// Stalls odd requests until the test releases them.
#[derive(Clone, Default)]
struct Server(Arc<State>);

#[derive(Default)]
struct State {
    connections: AtomicUsize,
    requests: AtomicUsize,
    /// Stalled requests that the server answered, and stalled requests that their client cancelled.
    answered: AtomicUsize,
    cancelled: AtomicUsize,
    go_on: Notify,
    hedges: AtomicUsize,
}

/// Counts a dropped request that stalled.
struct Stalled(Server);

impl Drop for Stalled {
    fn drop(&mut self) {
        self.0.0.cancelled.fetch_add(1, SeqCst);
    }
}

impl Server {
    async fn start() -> (Self, String) {
        let server = Self::default();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let accepting = server.clone();
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let server = accepting.clone();
                server.0.connections.fetch_add(1, SeqCst);
                let service = service_fn(move |request| server.clone().answer(request));
                tokio::spawn(async move {
                    let connection = auto::Builder::new(TokioExecutor::new());
                    // The clients of these tests cancel requests, so connections end with errors.
                    let _ = connection
                        .serve_connection(TokioIo::new(stream), service)
                        .await;
                });
            }
        });
        (server, url)
    }

    async fn answer(self, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
        let number = self.0.requests.fetch_add(1, SeqCst) + 1;
        if request.headers().contains_key("x-hedge-attempt") {
            self.0.hedges.fetch_add(1, SeqCst);
        }
        if number % 2 == 1 {
            let stalled = Stalled(self.clone());
            self.0.go_on.notified().await;
            std::mem::forget(stalled);
            self.0.answered.fetch_add(1, SeqCst);
        }
        Ok(Response::new(Full::from(number.to_string())))
    }

    fn connections(&self) -> usize {
        self.0.connections.load(SeqCst)
    }

    async fn wait_for(&self, count: impl Fn(&State) -> usize, expected: usize) {
        let reached = async {
            while count(&self.0) < expected {
                sleep(Duration::from_millis(1)).await;
            }
        };
        timeout(LONG, reached).await.expect("it does not come");
    }
}

fn client(http2: bool) -> Client<HttpConnector, Body> {
    Client::builder(TokioExecutor::new())
        .http2_only(http2)
        .build_http()
}

fn hedge() -> HedgeLayerBuilder {
    HedgeLayer::builder().fixed(TRIGGER)
}

fn get(url: &str) -> Request<Body> {
    Request::get(url).body(Body::new()).unwrap()
}

/// The text of the response, which must come from a hedge.
async fn call<S, E>(service: &S, url: &str) -> String
where
    S: tower::Service<Request<Body>, Response = Response<Incoming>, Error = E> + Clone,
    E: std::fmt::Debug,
{
    let call = service.clone().oneshot(get(url));
    let response = timeout(LONG, call).await.unwrap().unwrap();
    let info = response.extensions().get::<HedgeInfo>().copied().unwrap();
    assert_eq!(
        (info.winner, info.delay),
        (Some(Attempt::hedge(2)), TRIGGER)
    );
    let body = response.into_body().collect().await.unwrap();
    String::from_utf8(body.to_bytes().to_vec()).unwrap()
}

/// Polly awaits the losers before it returns the winner.
#[tokio::test]
async fn the_winner_does_not_wait_for_the_loser_and_the_loser_is_cancelled() {
    for http2 in [false, true] {
        let (server, url) = Server::start().await;
        let service = hedge().http().build().unwrap().layer(client(http2));
        for round in 1..=3 {
            assert_eq!(call(&service, &url).await, (2 * round).to_string());
            // HTTP/1 closes the loser's connection, HTTP/2 resets its stream.
            server
                .wait_for(|state| state.cancelled.load(SeqCst), round)
                .await;
        }
        assert_eq!(server.0.answered.load(SeqCst), 0);
        assert_eq!(
            server.0.hedges.load(SeqCst),
            3,
            "the field crosses the network"
        );
        // Each round of HTTP/1 opens a connection for the lost one; the streams of HTTP/2 share one connection.
        assert_eq!(server.connections(), if http2 { 1 } else { 4 });
    }
}

#[tokio::test]
async fn a_drained_loser_gives_its_connection_back() {
    for http2 in [false, true] {
        let (server, url) = Server::start().await;
        let layer = hedge().drain(Drain::default()).http().build().unwrap();
        let service = layer.layer(client(http2));
        for round in 1..=3 {
            assert_eq!(call(&service, &url).await, (2 * round).to_string());
            server.0.go_on.notify_one();
            server
                .wait_for(|state| state.answered.load(SeqCst), round)
                .await;
            // Time for the client to read the response.
            sleep(Duration::from_millis(50)).await;
        }
        assert_eq!(server.0.cancelled.load(SeqCst), 0);
        assert_eq!(server.connections(), if http2 { 1 } else { 2 });
    }
}

#[tokio::test]
async fn a_full_pool_drops_and_counts() {
    let (server, url) = Server::start().await;
    let drain = Drain::default().capacity(1);
    let layer = hedge().drain(drain.clone()).http().build().unwrap();
    let service = layer.layer(client(false));
    for _ in 0..3 {
        call(&service, &url).await;
    }
    server
        .wait_for(|state| state.cancelled.load(SeqCst), 2)
        .await;
    assert_eq!(drain.dropped(), 2);
    server.0.go_on.notify_one();
    server
        .wait_for(|state| state.answered.load(SeqCst), 1)
        .await;
}

#[tokio::test]
async fn draining_losers_end_with_the_time_limit_and_with_the_layer() {
    let (server, url) = Server::start().await;
    let drain = Drain::default().time_limit(Duration::from_millis(30));
    let layer = hedge().drain(drain).http().build().unwrap();
    call(&layer.layer(client(false)), &url).await;
    server
        .wait_for(|state| state.cancelled.load(SeqCst), 1)
        .await;

    let layer = hedge().drain(Drain::default()).http().build().unwrap();
    let service = layer.layer(client(false));
    call(&service, &url).await;
    drop((service, layer));
    server
        .wait_for(|state| state.cancelled.load(SeqCst), 2)
        .await;
}

#[tokio::test]
async fn a_caller_that_goes_takes_every_attempt_along_also_when_losers_drain() {
    let (server, url) = Server::start().await;
    let drain = Drain::default();
    let layer = hedge().drain(drain).http().build().unwrap();
    let service = layer.layer(client(false));
    let stalling = timeout(TRIGGER / 2, service.clone().oneshot(get(&url)));
    assert!(stalling.await.is_err());
    server
        .wait_for(|state| state.cancelled.load(SeqCst), 1)
        .await;
}

/// Sends a request that stalls until long after the trigger, and returns the layer's counts.
async fn stalls(request: impl FnOnce(&str) -> Request<Body>) -> (usize, HedgeCounts) {
    let (server, url) = Server::start().await;
    let layer = hedge().http().build().unwrap();
    let handle = layer.handle();
    let service = layer.layer(client(false));
    let call = timeout(5 * TRIGGER, service.oneshot(request(&url)));
    assert!(call.await.is_err());
    (server.0.requests.load(SeqCst), handle.counts())
}

/// A proxy that receives a hedge must not hedge it again, or each hop would double the hedges.
#[tokio::test]
async fn a_hedge_of_a_layer_above_is_not_hedged_again() {
    let passed_on = |url: &str| {
        let mut request = get(url);
        request.headers_mut().insert("x-hedge-attempt", 2.into());
        request
    };
    let (requests, counts) = stalls(passed_on).await;
    assert_eq!((requests, counts.hedges, counts.ineligible), (1, 0, 1));
}

/// hedgedhttp hedges every method, and its attempts share one body.
#[tokio::test]
async fn a_post_is_not_hedged() {
    let post = |url: &str| Request::post(url).body(Body::new()).unwrap();
    let (requests, counts) = stalls(post).await;
    assert_eq!((requests, counts.hedges, counts.ineligible), (1, 0, 1));
}
