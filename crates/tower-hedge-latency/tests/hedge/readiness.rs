//! Hedges whose service is not ready, or fails to get ready.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower_hedge_latency::{Budget, SkipReason};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_not_ready_delays_nothing_and_costs_nothing() {
    let budget = Budget::ratio(0.0).burst(1);
    let (mut call, mut handle) = call!(fixed(10).budget(budget.clone()), ready: 1);
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert!(budget.withdraw().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_is_not_ready_does_not_hold_up_a_failure() {
    let (mut call, mut handle) = call!(fixed(10), ready: 1);
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    primary.send_error("reset");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "reset");
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_gets_ready_late_is_sent_late() {
    let (mut call, mut handle) = call!(fixed(10), ready: 1);
    assert_pending!(call.poll());
    let _primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    handle.allow(1);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_whose_service_fails_is_forgotten() {
    let log = Log::default();
    let budget = Budget::ratio(0.0).burst(1);
    let layer = fixed(10).budget(budget.clone()).observer(log.clone());
    let (mut call, mut handle) = call!(layer, ready: 1);
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    handle.send_error("closed");
    assert_pending!(call.poll());
    assert!(budget.withdraw().is_some());
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(
        log.take(),
        [Started(1), Skipped(2, SkipReason::NotReady), Finished(1)]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hedge_that_waits_for_readiness_keeps_no_token_from_others() {
    let log = Log::default();
    let budget = Budget::ratio(0.0).burst(1);
    let layer = fixed(10).budget(budget.clone()).observer(log.clone());
    let (mut call, mut handle) = call!(layer, ready: 1);
    assert_pending!(call.poll());
    advance(ms(10)).await;
    assert_pending!(call.poll());
    // Another call takes the token in the meantime, so this hedge is denied when it is ready.
    budget.withdraw().unwrap().spend();
    handle.allow(1);
    assert_pending!(call.poll());
    let _primary = next(&mut handle).await;
    assert_no_request(&mut handle);
    drop(call);
    assert_eq!(
        log.take(),
        [Started(1), Skipped(2, SkipReason::Denied), Cancelled]
    );
}
