//! tower's retry, with the attempts and the backoff of `RetryLayer` and tower's own budget.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;
use tower::retry::backoff::MakeBackoff as _;
use tower::retry::budget::{Budget as _, TpsBudget};
use tower_jitter_retry::Backoff;

/// Retries after the first attempt: three attempts, the default of `RetryLayer`.
const MAX_RETRIES: usize = 2;

#[derive(Clone, Debug)]
pub(crate) struct TowerPolicy {
    budget: Arc<TpsBudget>,
    backoff: Arc<Mutex<Backoff>>,
    /// Retries of this request so far.
    retries: usize,
}

impl TowerPolicy {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Self {
            budget: Arc::default(),
            backoff: Arc::new(Mutex::new(backoff)),
            retries: 0,
        }
    }

    /// Draws the next delay. Each retry draws from a schedule of its own: full jitter has no memory.
    fn delay(&self) -> Sleep {
        let mut backoff = self.backoff.lock().unwrap_or_else(PoisonError::into_inner);
        let mut delays = backoff.make_backoff();
        sleep(delays.nth(self.retries).unwrap_or_default())
    }
}

impl Policy<(), (), BoxError> for TowerPolicy {
    type Future = Sleep;

    fn retry(&mut self, _: &mut (), result: &mut Result<(), BoxError>) -> Option<Sleep> {
        if result.is_ok() {
            self.budget.deposit();
            return None;
        }
        if self.retries == MAX_RETRIES || !self.budget.withdraw() {
            return None;
        }
        let delay = self.delay();
        self.retries += 1;
        Some(delay)
    }

    fn clone_request(&mut self, (): &()) -> Option<()> {
        Some(())
    }
}
