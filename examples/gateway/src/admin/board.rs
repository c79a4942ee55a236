//! Counts of the requests in each lane, and of the rate limit's decisions.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use hdrhistogram::Histogram;
use tokio::time::Instant;
use tower_dist_ratelimit::{Decided, Event, Source};
use tower_jitter_retry::Mode;

/// Counts since the start, over all requests.
#[derive(Debug, Default)]
pub(crate) struct Board {
    /// Requests through the gateway.
    pub(crate) layers: Arc<Lane>,
    /// Requests of the built-in traffic through the same layers, except the hedge.
    pub(crate) unhedged: Arc<Lane>,
    /// Requests of the built-in traffic that bypass the layers.
    pub(crate) bare: Arc<Lane>,
    decisions: Mutex<Vec<Decisions>>,
    /// Open circuits to the backend: of the layer that enforces the limit, and of the layer that only counts.
    circuits: [AtomicBool; 2],
}

/// Decisions on one policy by one source.
#[derive(Clone, Debug)]
pub(crate) struct Decisions {
    pub(crate) policy: String,
    pub(crate) source: Source,
    pub(crate) allowed: u64,
    pub(crate) rejected: u64,
}

impl Board {
    pub(crate) fn decisions(&self) -> Vec<Decisions> {
        self.decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns whether the circuit of the limit layer with this mode is open, or `None` for [`Mode::Off`].
    pub(crate) fn circuit_is_open(&self, layer: Mode) -> Option<bool> {
        self.circuit(layer).map(|circuit| circuit.load(Relaxed))
    }

    fn circuit(&self, layer: Mode) -> Option<&AtomicBool> {
        match layer {
            Mode::On => Some(&self.circuits[0]),
            Mode::Shadow => Some(&self.circuits[1]),
            _ => None,
        }
    }

    fn set_circuit(&self, layer: Mode, is_open: bool) {
        if let Some(circuit) = self.circuit(layer) {
            circuit.store(is_open, Relaxed);
        }
    }

    /// Receives an event of the limit layer with this mode.
    pub(crate) fn on_event(&self, layer: Mode, event: Event<'_>) {
        match event {
            Event::Allowed(decided) => self.count(decided),
            Event::Rejected(rejection) | Event::Shadowed(rejection) => {
                self.count(rejection.decided())
            }
            Event::CircuitOpened(_) => self.set_circuit(layer, true),
            Event::CircuitClosed => self.set_circuit(layer, false),
            _ => {}
        }
    }

    fn count(&self, decided: Decided<'_>) {
        let mut counts = self
            .decisions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        for (policy, decision) in decided.iter() {
            let same =
                |count: &&mut Decisions| count.policy == policy && count.source == decision.source;
            let (allowed, rejected) = (u64::from(decision.allowed), u64::from(!decision.allowed));
            match counts.iter_mut().find(same) {
                Some(count) => {
                    count.allowed += allowed;
                    count.rejected += rejected;
                }
                None => counts.push(Decisions {
                    policy: policy.to_owned(),
                    source: decision.source,
                    allowed,
                    rejected,
                }),
            }
        }
    }
}

/// Requests on one way to the upstream.
#[derive(Debug)]
pub(crate) struct Lane {
    requests: AtomicU64,
    rejected: AtomicU64,
    failed: AtomicU64,
    /// Microseconds until the response head, since the last [`take`](Self::take). Rejections are left out.
    latency: Mutex<Histogram<u64>>,
}

impl Default for Lane {
    fn default() -> Self {
        Self {
            requests: AtomicU64::default(),
            rejected: AtomicU64::default(),
            failed: AtomicU64::default(),
            latency: Mutex::new(histogram()),
        }
    }
}

/// Two significant digits, which no chart resolves, up to a minute.
pub(super) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 2).expect("the bounds are valid")
}

/// Totals of a lane, and its latencies since they were last taken.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) requests: u64,
    pub(super) rejected: u64,
    pub(super) failed: u64,
    pub(super) latency: Histogram<u64>,
}

impl Lane {
    pub(super) fn take(&self) -> Taken {
        let mut latency = self.latency.lock().unwrap_or_else(PoisonError::into_inner);
        // A request is counted first as a request, so it is read last.
        let (rejected, failed) = (self.rejected.load(Relaxed), self.failed.load(Relaxed));
        Taken {
            rejected,
            failed,
            requests: self.requests.load(Relaxed),
            latency: std::mem::replace(&mut latency, histogram()),
        }
    }
}

/// Counts the request and its response.
pub(crate) async fn record(
    State(lane): State<Arc<Lane>>,
    request: Request,
    next: Next,
) -> Response {
    let start = Instant::now();
    let response = next.run(request).await;
    lane.requests.fetch_add(1, Relaxed);
    if response.status() == StatusCode::TOO_MANY_REQUESTS {
        lane.rejected.fetch_add(1, Relaxed);
        return response;
    }
    if response.status().is_server_error() {
        lane.failed.fetch_add(1, Relaxed);
    }
    let micros = u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX);
    let mut latency = lane.latency.lock().unwrap_or_else(PoisonError::into_inner);
    latency.saturating_record(micros);
    drop(latency);
    response
}
