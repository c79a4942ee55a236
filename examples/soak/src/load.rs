//! The load: requests on schedule, whether or not earlier ones have been answered.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{HeaderValue, Request, Response, StatusCode};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use rand::RngExt as _;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tower::BoxError;

use crate::checks::{Post, SLOT, Span};
use crate::upstream::{ID, MARK, Upstream};

pub(crate) type LoadClient = Client<HttpConnector, Empty<Bytes>>;

/// Maximum wait for a response.
const PATIENCE: Duration = Duration::from_secs(20);
/// Maximum number of requests of one kind in flight.
const IN_FLIGHT: usize = 200;

/// What a client sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// GETs of one client, three times as many as its limit allows.
    Hot,
    /// POSTs of modest clients.
    Posts,
    /// GETs with a new key each: long, unique and binary.
    HostileKeys,
}

/// The time of the run, and the timeouts of the gateways.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) start: Instant,
    pub(crate) end: Instant,
    pub(crate) decision_timeout: Duration,
}

/// The results of one load.
#[derive(Debug, Default)]
pub(crate) struct Results {
    pub(crate) requests: u64,
    pub(crate) no_response: u64,
    /// Admitted requests, by the slot of time in which they were sent.
    pub(crate) admitted: Vec<u64>,
    /// Decisions that took longer than their timeout. A request is decided when its client receives the rejection, or
    /// when the upstream receives the request.
    pub(crate) slow_decisions: Vec<Span>,
    /// Admitted requests that took longer than a second.
    pub(crate) slow_requests: Vec<Span>,
    pub(crate) posts: Vec<(u64, Post)>,
}

/// The response to one request.
struct Outcome {
    id: u64,
    span: Span,
    /// The time from sending the request until the upstream received it.
    forwarded: Option<Duration>,
    /// The status, and whether it is the upstream's. `None`: no response.
    status: Option<(StatusCode, bool)>,
}

/// Sends `per_second` requests of a kind, to each gateway in turn, until the run ends. Ids begin at `first_id`.
pub(crate) async fn send(
    kind: Kind,
    per_second: f64,
    gateways: Vec<SocketAddr>,
    first_id: u64,
    upstream: Upstream,
    run: Run,
) -> Result<Results, BoxError> {
    let client = client();
    let urls: Vec<String> = gateways
        .iter()
        .map(|addr| format!("http://{addr}/"))
        .collect();
    let mut results = Results::default();
    let mut calls = JoinSet::new();
    let mut schedule = interval(Duration::from_secs_f64(1.0 / per_second));
    for (id, url) in (first_id..).zip(urls.iter().cycle()) {
        schedule.tick().await;
        while let Some(outcome) = calls.try_join_next() {
            results.add(kind, outcome?, run);
        }
        if Instant::now() >= run.end {
            break;
        }
        // A machine that is too slow for the rate sends fewer requests.
        if calls.len() < IN_FLIGHT {
            let request = match kind {
                Kind::Hot => request("GET", url, Some("hot".try_into()?), Some(id))?,
                Kind::Posts => {
                    let key = format!("modest-{}", id % 50).try_into()?;
                    request("POST", url, Some(key), Some(id))?
                }
                Kind::HostileKeys => request("GET", url, Some(hostile_key(id)?), Some(id))?,
            };
            calls.spawn(call(
                client.clone(),
                request,
                id,
                upstream.clone(),
                run.start,
            ));
        }
    }
    while let Some(outcome) = calls.join_next().await {
        results.add(kind, outcome?, run);
    }
    Ok(results)
}

impl Results {
    fn add(&mut self, kind: Kind, outcome: Outcome, run: Run) {
        let Outcome {
            id,
            span,
            forwarded,
            status,
        } = outcome;
        self.requests += 1;
        let is_rejected = status.is_some_and(|(status, is_upstreams)| {
            let rejections = [
                StatusCode::TOO_MANY_REQUESTS,
                StatusCode::SERVICE_UNAVAILABLE,
            ];
            rejections.contains(&status) && !is_upstreams
        });
        self.no_response += u64::from(status.is_none());
        let decision = Span {
            took: forwarded.unwrap_or(if is_rejected {
                span.took
            } else {
                Duration::ZERO
            }),
            ..span
        };
        if decision.took > run.decision_timeout {
            self.slow_decisions.push(decision);
        }
        if !is_rejected && span.took > Duration::from_secs(1) {
            self.slow_requests.push(span);
        }
        match kind {
            Kind::Hot if !is_rejected => {
                let slot = (span.at.as_millis() / SLOT.as_millis()) as usize;
                if self.admitted.len() <= slot {
                    self.admitted.resize(slot + 1, 0);
                }
                self.admitted[slot] += 1;
            }
            Kind::Posts => {
                let post = match status {
                    None => Post::NoResponse,
                    Some((status, _)) if status.is_success() => Post::Succeeded,
                    Some((StatusCode::SERVICE_UNAVAILABLE, _)) => Post::Rejected,
                    Some(_) if is_rejected => Post::Rejected,
                    Some(_) => Post::Unknown,
                };
                self.posts.push((id, post));
            }
            Kind::Hot | Kind::HostileKeys => {}
        }
    }
}

async fn call(
    client: LoadClient,
    request: Request<Empty<Bytes>>,
    id: u64,
    upstream: Upstream,
    start: Instant,
) -> Outcome {
    let sent = Instant::now();
    let response = timeout(PATIENCE, async {
        let response = client.request(request).await?;
        let is_upstreams = response.headers().contains_key(MARK);
        let status = response.status();
        Response::into_body(response).collect().await?;
        Ok::<_, BoxError>((status, is_upstreams))
    });
    let status = response.await.ok().and_then(Result::ok);
    let span = Span {
        at: sent - start,
        took: sent.elapsed(),
    };
    let forwarded = upstream.take_arrival(id).map(|at| at - sent);
    Outcome {
        id,
        span,
        forwarded,
        status,
    }
}

/// Measures the scheduling delays of this machine: requests straight to the upstream, which answers immediately.
pub(crate) async fn control(upstream: SocketAddr, run: Run) -> Result<Vec<Span>, BoxError> {
    let client = client();
    let url = format!("http://{upstream}/control");
    let mut spans = vec![];
    let mut schedule = interval(Duration::from_millis(20));
    schedule.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        // The tick is due at an earlier time than this task runs if the machine is busy.
        let due = schedule.tick().await;
        if due >= run.end {
            return Ok(spans);
        }
        client.request(request("GET", &url, None, None)?).await?;
        spans.push(Span {
            at: due - run.start,
            took: due.elapsed(),
        });
    }
}

pub(crate) fn request(
    method: &str,
    url: &str,
    key: Option<HeaderValue>,
    id: Option<u64>,
) -> Result<Request<Empty<Bytes>>, BoxError> {
    let mut request = Request::builder().method(method).uri(url);
    if let Some(key) = key {
        request = request.header("x-api-key", key);
    }
    if let Some(id) = id {
        request = request.header(ID, id);
    }
    Ok(request.body(Empty::new())?)
}

/// A unique key of up to 4 KB, with every byte that a header may contain.
fn hostile_key(id: u64) -> Result<HeaderValue, BoxError> {
    let mut rng = rand::rng();
    let length = rng.random_range(0..4_000);
    let mut key = format!("{id}-").into_bytes();
    let bytes = (0..length).map(|_| match rng.random_range(0x21..=0xff) {
        0x7f => b' ',
        byte => byte,
    });
    key.extend(bytes);
    key.push(b'.');
    Ok(HeaderValue::from_bytes(&key)?)
}

pub(crate) fn client() -> LoadClient {
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    Client::builder(TokioExecutor::new()).build(connector)
}
