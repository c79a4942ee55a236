//! The tokens that retries take, and the deposits of calls.

use std::future::{Ready, ready};
use std::task::{Context, Poll};

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower::{Layer, Service, ServiceExt};
use tower_jitter_retry::{Backoff, Budget, RetryLayer, StopReason};

use crate::support::Event::{Cancelled, Started, Stopped};
use crate::support::{Log, builder, call, fail, ms, next};

#[tokio::test(start_paused = true)]
async fn an_empty_budget_returns_the_outcome_without_a_wait() {
    let log = Log::default();
    let layer = builder()
        .budget(Budget::ratio(0.0).initial(0))
        .observer(log.clone());
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "failed");
    assert_eq!(
        log.take(),
        [Started(1), Stopped(1, StopReason::BudgetExhausted)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_retry_costs_one_token_and_a_cancelled_wait_none() {
    let budget = Budget::ratio(0.0).burst(1);
    let layer = builder().budget(budget.clone()).build().unwrap();
    let log = Log::default();
    let observed = builder().budget(budget.clone()).observer(log.clone());

    // A call that is cancelled during its wait returns the token.
    let (mut call, mut handle) = call!(observed.build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    assert!(budget.withdraw().is_none());
    drop(call);
    assert!(budget.withdraw().is_some());
    assert_eq!(log.take().pop(), Some(Cancelled(1)));

    // A call that is cancelled with an attempt in flight does not.
    let (mut call, mut handle) = call!(layer);
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    next(&mut handle).await;
    drop(call);
    assert!(budget.withdraw().is_none());
}

/// A service whose clones panic in `poll_ready`.
struct Panics(bool);

impl Clone for Panics {
    fn clone(&self) -> Self {
        Self(true)
    }
}

impl Service<()> for Panics {
    type Response = ();
    type Error = &'static str;
    type Future = Ready<Result<(), &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        assert!(!self.0, "asked");
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Self::Future {
        ready(Err("failed"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_retry_costs_no_token() {
    let budget = Budget::ratio(0.0).burst(1);
    let log = Log::default();
    let layer = RetryLayer::builder().backoff(Backoff::none());
    let layer = layer.budget(budget.clone()).observer(log.clone()).build();
    let mut service = layer.unwrap().layer(Panics(false));
    let call = service.ready().await.unwrap().call(());
    tokio::spawn(call).await.unwrap_err();
    assert_eq!(log.take().pop(), Some(Cancelled(1)));
    assert!(budget.withdraw().is_some());
}

#[tokio::test(start_paused = true)]
async fn only_successes_deposit_and_only_where_the_budget_is_not_shared() {
    let budget = || Budget::ratio(1.0).burst(1).initial(0);
    let (own, shared) = (budget(), budget());
    let deposits = |layer: RetryLayer| async move {
        let (mut call, mut handle) = call!(layer);
        assert_pending!(call.poll());
        next(&mut handle).await.send_response(1);
        assert_ready_ok!(call.poll());
    };
    deposits(builder().budget(own.clone()).build().unwrap()).await;
    assert!(own.withdraw().is_some());
    deposits(builder().shared_budget(shared.clone()).build().unwrap()).await;
    assert!(shared.withdraw().is_none());

    let failing = budget();
    let (mut call, mut handle) = call!(builder().budget(failing.clone()).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_ready_err!(call.poll());
    assert!(failing.withdraw().is_none());
}

#[tokio::test(start_paused = true)]
async fn every_service_of_a_layer_draws_on_the_same_budget() {
    let layer = builder()
        .budget(Budget::ratio(0.0).burst(1))
        .build()
        .unwrap();
    let (mut first, mut first_handle) = call!(layer.clone());
    let (mut second, mut second_handle) = call!(layer);
    assert_pending!(first.poll());
    assert_pending!(second.poll());
    fail(&mut first_handle).await;
    fail(&mut second_handle).await;
    assert_pending!(first.poll());
    assert_ready_err!(second.poll());
}
