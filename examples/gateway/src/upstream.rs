//! The flaky upstream: a real server that echoes requests, sometimes late and sometimes never.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde::{Deserialize, Serialize};

use crate::profile::{Outcome, Profile};

/// A path whose responses take longer, as a route with more work does.
pub(crate) const REPORT: &str = "/report";
const REPORT_DELAY: Duration = Duration::from_millis(30);

/// A fault that the page switches on and off, besides those of the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fault {
    /// Three in ten requests take a second: one of three replicas is slow.
    SlowReplica,
    /// A third of the requests get a 503.
    Unavailable,
    /// One request in fifty gets no response.
    Stalls,
    /// A tenth of the connections close without a response.
    Resets,
}

impl Fault {
    const ALL: [Self; 4] = [
        Self::SlowReplica,
        Self::Unavailable,
        Self::Stalls,
        Self::Resets,
    ];

    /// The share of the requests that meet the fault, and what happens to them.
    fn effect(self) -> (f64, Outcome) {
        match self {
            Self::SlowReplica => (0.3, Outcome::Answer(Duration::from_secs(1))),
            Self::Unavailable => {
                let delay = Duration::from_millis(15);
                (
                    0.33,
                    Outcome::Unavailable {
                        delay,
                        retry_after: false,
                    },
                )
            }
            Self::Stalls => (0.02, Outcome::Stall),
            Self::Resets => (0.1, Outcome::Reset),
        }
    }
}

/// The faults that are switched on.
#[derive(Clone, Debug, Default)]
pub(crate) struct Faults(Arc<[AtomicBool; Fault::ALL.len()]>);

impl Faults {
    pub(crate) fn set(&self, fault: Fault, on: bool) {
        self.0[fault as usize].store(on, Ordering::Relaxed);
    }

    pub(crate) fn active(&self) -> Vec<Fault> {
        let is_on = |fault: &Fault| self.0[*fault as usize].load(Ordering::Relaxed);
        Fault::ALL.into_iter().filter(is_on).collect()
    }

    /// The outcome of the first fault that strikes. Each has a random number of its own.
    fn strike(&self, rng: &mut StdRng) -> Option<Outcome> {
        let effects = self.active().into_iter().map(Fault::effect);
        effects
            .into_iter()
            .find_map(|(share, outcome)| (rng.random::<f64>() < share).then_some(outcome))
    }
}

/// Draws the outcome of each request and counts them.
#[derive(Clone, Debug)]
pub(crate) struct Flaky {
    profile: Profile,
    seed: u64,
    served: Arc<AtomicU64>,
    faults: Faults,
}

impl Flaky {
    pub(crate) fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            seed,
            served: Arc::default(),
            faults: Faults::default(),
        }
    }

    pub(crate) fn faults(&self) -> Faults {
        self.faults.clone()
    }

    /// Requests that have arrived so far.
    pub(crate) fn served(&self) -> u64 {
        self.served.load(Ordering::Relaxed)
    }

    pub(crate) fn app(&self) -> Router {
        Router::new().fallback(serve).with_state(self.clone())
    }

    /// The n-th outcome depends only on the seed and on n, so every run with one attempt per request has the same
    /// failures.
    fn next(&self) -> (u64, Outcome) {
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        let mut key = [0; 32];
        key[..8].copy_from_slice(&self.seed.to_le_bytes());
        key[8..16].copy_from_slice(&number.to_le_bytes());
        let mut rng = StdRng::from_seed(key);
        let usual = self.profile.outcome(rng.random(), rng.random());
        (number + 1, self.faults.strike(&mut rng).unwrap_or(usual))
    }
}

async fn serve(State(flaky): State<Flaky>, head: Parts, body: Bytes) -> Response {
    let (number, outcome) = flaky.next();
    match outcome {
        Outcome::Answer(delay) => {
            let more = match head.uri.path() {
                REPORT => REPORT_DELAY,
                _ => Duration::ZERO,
            };
            tokio::time::sleep(delay + more).await;
            echo(number, &head, &body).into_response()
        }
        Outcome::Unavailable { delay, retry_after } => {
            tokio::time::sleep(delay).await;
            let hint = retry_after.then_some([(RETRY_AFTER, "1")]);
            (StatusCode::SERVICE_UNAVAILABLE, hint, "try again\n").into_response()
        }
        // The server drops this future when the client closes the connection.
        Outcome::Stall => std::future::pending().await,
        // Ends the connection's task, without the message of a panic.
        Outcome::Reset => std::panic::resume_unwind(Box::new("reset")),
    }
}

/// The request as it arrived, to show the forwarded headers. Gaps between the numbers are retries and hedges.
fn echo(number: u64, head: &Parts, body: &[u8]) -> String {
    let mut text = format!("request {number}: {} {}\n", head.method, head.uri);
    for (name, value) in &head.headers {
        let value = String::from_utf8_lossy(value.as_bytes());
        text += &format!("{name}: {value}\n");
    }
    text + "\n" + &String::from_utf8_lossy(body)
}
