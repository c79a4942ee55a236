//! A limiter under observation.

use std::time::Duration;

use tokio::time::{Instant, advance};
use tower::BoxError;
use tower_dist_ratelimit::{Decision, Limiter};

use super::algorithm::{Algorithm, COST};
use super::{LIMIT, WINDOW};

/// A limiter, and when it has let requests through.
#[derive(Debug)]
pub(crate) struct Limited {
    limiter: Limiter,
    start: Instant,
    /// Tokens that are left of an unused key.
    full: u64,
    /// Since the start; in order, and for a queue also those yet to come.
    passed: Vec<Duration>,
}

/// All share it.
const KEY: &str = "client";

impl Limited {
    /// On the paused clock of the current runtime.
    pub(crate) async fn start(algorithm: Algorithm) -> Result<Self, BoxError> {
        let limiter = algorithm.limiter()?;
        let full = limiter.peek(KEY).await?.remaining;
        Ok(Self {
            limiter,
            start: Instant::now(),
            full,
            passed: Vec::new(),
        })
    }

    pub(crate) fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Lets time pass until then.
    pub(crate) async fn until(&self, time: Duration) {
        advance(time.saturating_sub(self.now())).await;
    }

    /// The requests that the algorithm believes to be in the window.
    pub(crate) async fn believed(&self) -> Result<f64, BoxError> {
        let left = self.limiter.peek(KEY).await?.remaining;
        Ok((self.full - left) as f64 / COST as f64)
    }

    /// The requests that have passed in the window that ends then.
    pub(crate) fn passed_until(&self, end: Duration) -> u64 {
        let until = |time| self.passed.partition_point(|passed| *passed <= time) as u64;
        let before = end.checked_sub(WINDOW).map_or(0, until);
        until(end) - before
    }

    pub(crate) async fn request(&mut self) -> Result<Decision, BoxError> {
        let decision = self.limiter.check(KEY).await?;
        if decision.allowed {
            self.passed.push(self.now() + decision.delay);
        }
        Ok(decision)
    }

    /// Whether the window of the latest that has passed has more than the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.passed
            .last()
            .is_some_and(|last| self.passed_until(*last) > LIMIT)
    }

    pub(crate) fn admitted(&self) -> usize {
        self.passed.len()
    }

    /// The most that have passed in any window.
    pub(crate) fn worst_window(&self) -> u64 {
        let windows = self.passed.iter().map(|end| self.passed_until(*end));
        windows.max().unwrap_or(0)
    }
}
