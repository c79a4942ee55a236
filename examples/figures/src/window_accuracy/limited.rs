//! A limiter with a log of its admitted requests.

use std::time::Duration;

use tokio::time::{Instant, advance};
use tower::BoxError;
use tower_dist_ratelimit::{Decision, Limiter};

use super::algorithm::{Algorithm, COST};
use super::{LIMIT, WINDOW};

/// A limiter, and the times of its admitted requests.
#[derive(Debug)]
pub(crate) struct Limited {
    limiter: Limiter,
    start: Instant,
    /// Remaining tokens of an unused key.
    full: u64,
    /// Times since the start, sorted. A queue also has times in the future.
    passed: Vec<Duration>,
}

/// The key of all requests.
const KEY: &str = "client";

impl Limited {
    /// Starts on the paused clock of the current runtime.
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

    /// Advances the clock to `time`.
    pub(crate) async fn until(&self, time: Duration) {
        advance(time.saturating_sub(self.now())).await;
    }

    /// Returns the algorithm's count of the requests in the window.
    pub(crate) async fn believed(&self) -> Result<f64, BoxError> {
        let left = self.limiter.peek(KEY).await?.remaining;
        Ok((self.full - left) as f64 / COST as f64)
    }

    /// Returns the number of requests that were admitted in the window up to `end`.
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

    /// Returns whether the window up to the latest admitted request exceeds the limit.
    pub(crate) fn is_over(&self) -> bool {
        self.passed
            .last()
            .is_some_and(|last| self.passed_until(*last) > LIMIT)
    }

    /// Returns the times of the admitted requests since the start.
    pub(crate) fn admitted(&self) -> &[Duration] {
        &self.passed
    }

    /// Returns the largest number of requests that were admitted in any window.
    pub(crate) fn worst_window(&self) -> u64 {
        let windows = self.passed.iter().map(|end| self.passed_until(*end));
        windows.max().unwrap_or(0)
    }
}
