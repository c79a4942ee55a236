//! Three real upstreams, one of them slow: hedges go to another upstream.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, Error, ResponseFuture};
use hyper_util::rt::TokioExecutor;
use tokio::net::TcpListener;
use tower::{Layer, Service, ServiceExt};
use tower_hedge_latency::{Attempt, AttemptKind, HedgeLayer, HedgeLayerBuilder, UsedEndpoints};

const TRIGGER: Duration = Duration::from_millis(20);
/// At least 20 times the latency of the other upstreams.
const SLOW: Duration = Duration::from_secs(5);

type Body = Empty<Bytes>;

/// Answers with its name; the slow upstream delays the answer.
async fn upstream(name: &'static str, slow: bool) -> String {
    let answer = move || async move {
        if slow {
            tokio::time::sleep(SLOW).await;
        }
        name
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let authority = listener.local_addr().unwrap().to_string();
    let router: Router = Router::new().route("/", get(answer));
    tokio::spawn(async move { axum::serve(listener, router).await });
    authority
}

/// Upstream `a` is slow.
async fn upstreams() -> Vec<String> {
    vec![
        upstream("a", true).await,
        upstream("b", false).await,
        upstream("c", false).await,
    ]
}

/// An upstream, and the extra attempt that was sent to it.
type Pick = (String, Option<Attempt>);

/// Chooses the upstreams in turn, and skips those that had an attempt of the same call.
#[derive(Clone)]
struct Balancer {
    client: Client<HttpConnector, Body>,
    upstreams: Vec<String>,
    turn: Arc<AtomicUsize>,
    /// The upstream of each attempt.
    picks: Arc<Mutex<Vec<Pick>>>,
}

impl Balancer {
    fn new(upstreams: Vec<String>) -> Self {
        Self {
            client: Client::builder(TokioExecutor::new()).build_http(),
            upstreams,
            turn: Arc::default(),
            picks: Arc::default(),
        }
    }

    fn picks(&self) -> Vec<Pick> {
        self.picks.lock().unwrap().clone()
    }
}

impl Service<Request<Body>> for Balancer {
    type Response = Response<Incoming>;
    type Error = Error;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> ResponseFuture {
        let used = request.extensions().get::<UsedEndpoints>().cloned();
        let turn = self.turn.fetch_add(1, SeqCst);
        let in_turn = self
            .upstreams
            .iter()
            .cycle()
            .skip(turn % self.upstreams.len());
        let mut fresh = in_turn
            .take(self.upstreams.len())
            .filter(|upstream| used.as_ref().is_none_or(|used| !used.contains(upstream)));
        let upstream = fresh.next().unwrap_or(&self.upstreams[0]).clone();
        if let Some(used) = used {
            used.add(&upstream);
        }
        let attempt = request.extensions().get().copied();
        self.picks.lock().unwrap().push((upstream.clone(), attempt));
        *request.uri_mut() = format!("http://{upstream}/").parse().unwrap();
        self.client.request(request)
    }
}

fn hedge() -> HedgeLayerBuilder {
    HedgeLayer::builder().fixed(TRIGGER)
}

fn request() -> Request<Body> {
    Request::new(Body::new())
}

async fn name<S, E>(service: &S) -> Bytes
where
    S: Service<Request<Body>, Response = Response<Incoming>, Error = E> + Clone,
    E: std::fmt::Debug,
{
    let response = service.clone().oneshot(request()).await.unwrap();
    response.into_body().collect().await.unwrap().to_bytes()
}

#[tokio::test]
async fn a_hedge_goes_to_an_upstream_that_the_first_attempt_did_not_use() {
    let upstreams = upstreams().await;
    let balancer = Balancer::new(upstreams.clone());
    let layer = hedge().max_hedges(2).spread().http().build().unwrap();
    let handle = layer.handle();
    let service = layer.layer(balancer.clone());
    let calls = 12;
    for _ in 0..calls {
        let name = tokio::time::timeout(SLOW, name(&service)).await.unwrap();
        assert_ne!(name, "a", "the slow one never wins");
    }
    let counts = handle.counts();
    assert!(
        counts.hedge_wins >= 4,
        "each that began at the slow one: {counts:?}"
    );
    // No call used an upstream twice: the attempts from one first attempt to the next used different upstreams.
    let picks = balancer.picks();
    let is_hedge = |attempt: &Option<Attempt>| {
        attempt.is_some_and(|attempt| attempt.kind() == AttemptKind::Hedge)
    };
    let mut used = BTreeSet::new();
    for (upstream, attempt) in &picks {
        if !is_hedge(attempt) {
            used.clear();
        }
        assert!(used.insert(upstream), "{picks:?}");
    }
    assert_eq!(picks.len() as u64, calls + counts.hedges);
}

/// A client of a single upstream.
fn to(
    upstream: &str,
) -> impl Service<Request<Body>, Response = Response<Incoming>, Error = Error, Future: Send>
+ Clone
+ Send
+ 'static {
    let uri: Uri = format!("http://{upstream}/").parse().unwrap();
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build_http();
    tower::service_fn(move |mut request: Request<Body>| {
        *request.uri_mut() = uri.clone();
        client.request(request)
    })
}

#[tokio::test]
async fn the_services_of_a_list_take_the_hedges() {
    let upstreams = upstreams().await;
    let alternates = [to(&upstreams[1]), to(&upstreams[2])];
    let layer = hedge().alternates(alternates).http().build().unwrap();
    let service = layer.layer(to(&upstreams[0]));
    for _ in 0..3 {
        assert_eq!(
            tokio::time::timeout(SLOW, name(&service)).await.unwrap(),
            "b"
        );
    }
}

#[tokio::test]
async fn a_closure_receives_the_attempt_and_the_endpoints_in_use() {
    let upstreams = upstreams().await;
    let balancer = Balancer::new(upstreams.clone());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (log, others) = (Arc::clone(&seen), upstreams.clone());
    let choose = move |attempt: Attempt, used: &UsedEndpoints| {
        log.lock().unwrap().push((attempt.number(), used.to_vec()));
        Balancer::new(vec![others[2].clone()])
    };
    let layer = hedge().alternates_fn(choose).http().build().unwrap();
    let service = layer.layer(balancer);
    assert_eq!(
        tokio::time::timeout(SLOW, name(&service)).await.unwrap(),
        "c"
    );
    let expected = vec![(2, vec![upstreams[0].clone().into_boxed_str()])];
    assert_eq!(*seen.lock().unwrap(), expected);
}
