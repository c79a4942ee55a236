//! The peers, built as in their documentation, with our defaults for numbers.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Sleep;
use tower::BoxError;
use tower::retry::backoff::{Backoff, ExponentialBackoff, ExponentialBackoffMaker, MakeBackoff};
use tower::retry::budget::{Budget, TpsBudget};
use tower::retry::{Policy, RetryLayer};
use tower::util::rng::HasherRng;
use tower_resilience_retry::{
    ExponentialRandomBackoff, RetryBudget, RetryBudgetBuilder, RetryConfigBuilder,
};

use super::inner::{Request, Response};

const ATTEMPTS: usize = 3;
const BASE: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(20);

/// tower's retries with a number of attempts and a backoff with jitter.
pub(super) fn tower() -> RetryLayer<Attempts<NoBudget>> {
    RetryLayer::new(Attempts::new(NoBudget))
}

/// tower's retries with state that all calls share: each call clones and drops an `Arc`.
pub(super) fn tower_shared() -> RetryLayer<Attempts<SharedBudget<NoBudget>>> {
    let budget = SharedBudget(Arc::new(NoBudget));
    RetryLayer::new(Attempts::new(budget))
}

/// tower's retries with tower's default budget: 20 % of the calls and 10 per second.
pub(super) fn tower_budget() -> RetryLayer<Attempts<SharedBudget<TpsBudget>>> {
    let budget = SharedBudget(Arc::new(TpsBudget::default()));
    RetryLayer::new(Attempts::new(budget))
}

/// tower-resilience's retries with a random backoff between zero and twice its value.
pub(super) fn resilience<Req, Res>() -> RetryConfigBuilder<Req, Res, BoxError> {
    let backoff = ExponentialRandomBackoff::new(BASE, 1.0).expect("a factor in its range");
    RetryConfigBuilder::new()
        .max_attempts(ATTEMPTS)
        .backoff(backoff.max_interval(CAP))
}

/// tower-resilience's retries for HTTP. The policy reads the method and the status, the minimum for safety; tower's
/// policy here reads the same.
pub(super) fn resilience_http() -> RetryConfigBuilder<Request, Response, BoxError> {
    resilience()
        .max_attempts_fn(|request: &Request| match request.method().is_idempotent() {
            true => ATTEMPTS,
            false => 1,
        })
        .retry_on_response(|response: &Response| response.status().is_server_error())
}

/// tower-resilience's token bucket with 10 per second and a burst of 100.
pub(super) fn resilience_budget() -> Arc<dyn RetryBudget> {
    let budget = RetryBudgetBuilder::new().token_bucket();
    budget.build().expect("defaults are valid")
}

/// A policy as users of tower write it: `retry` decides, `clone_request` copies.
#[derive(Clone, Debug)]
pub(super) struct Attempts<B> {
    left: usize,
    backoff: ExponentialBackoff,
    budget: B,
}

impl<B: Budget> Attempts<B> {
    fn new(budget: B) -> Self {
        let maker = ExponentialBackoffMaker::new(BASE, CAP, 0.99, HasherRng::default());
        Self {
            left: ATTEMPTS - 1,
            backoff: maker.expect("a base below the cap").make_backoff(),
            budget,
        }
    }

    fn after(&mut self, failed: bool) -> Option<Sleep> {
        if !failed {
            self.budget.deposit();
            return None;
        }
        self.left = self.left.checked_sub(1)?;
        let paid = self.budget.withdraw();
        paid.then(|| self.backoff.next_backoff())
    }
}

impl<B: Budget> Policy<u64, u64, BoxError> for Attempts<B> {
    type Future = Sleep;

    fn retry(&mut self, _: &mut u64, outcome: &mut Result<u64, BoxError>) -> Option<Sleep> {
        self.after(outcome.is_err())
    }

    fn clone_request(&mut self, request: &u64) -> Option<u64> {
        Some(*request)
    }
}

impl<B: Budget> Policy<Request, Response, BoxError> for Attempts<B> {
    type Future = Sleep;

    fn retry(
        &mut self,
        _: &mut Request,
        outcome: &mut Result<Response, BoxError>,
    ) -> Option<Sleep> {
        self.after(match outcome {
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        })
    }

    fn clone_request(&mut self, request: &Request) -> Option<Request> {
        request.method().is_idempotent().then(|| request.clone())
    }
}

/// A zero-sized budget that allows every retry.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoBudget;

impl Budget for NoBudget {
    fn deposit(&self) {}

    fn withdraw(&self) -> bool {
        true
    }
}

/// One budget for all calls of a layer.
#[derive(Debug)]
pub(super) struct SharedBudget<B>(Arc<B>);

impl<B> Clone for SharedBudget<B> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<B: Budget> Budget for SharedBudget<B> {
    fn deposit(&self) {
        self.0.deposit();
    }

    fn withdraw(&self) -> bool {
        self.0.withdraw()
    }
}
