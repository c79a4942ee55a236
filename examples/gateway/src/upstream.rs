//! The flaky upstream: a real server that echoes requests, sometimes late and sometimes never.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use crate::profile::{Outcome, Profile};

/// Draws the outcome of each request and counts them.
#[derive(Clone, Debug)]
pub(crate) struct Flaky {
    profile: Profile,
    seed: u64,
    served: Arc<AtomicU64>,
}

impl Flaky {
    pub(crate) fn new(profile: Profile, seed: u64) -> Self {
        Self {
            profile,
            seed,
            served: Arc::default(),
        }
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
        (number + 1, self.profile.outcome(rng.random(), rng.random()))
    }
}

async fn serve(State(flaky): State<Flaky>, head: Parts, body: Bytes) -> Response {
    let (number, outcome) = flaky.next();
    match outcome {
        Outcome::Answer(delay) => {
            tokio::time::sleep(delay).await;
            echo(number, &head, &body).into_response()
        }
        Outcome::Unavailable { delay, retry_after } => {
            tokio::time::sleep(delay).await;
            let hint = retry_after.then_some([(RETRY_AFTER, "1")]);
            (StatusCode::SERVICE_UNAVAILABLE, hint, "try again\n").into_response()
        }
        // The server drops this future when the client closes the connection.
        Outcome::Stall => std::future::pending().await,
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
