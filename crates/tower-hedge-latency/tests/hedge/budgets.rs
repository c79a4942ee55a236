//! The tokens that hedges take, and the deposits and failures that calls record.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready, assert_ready_ok, task};
use tower_hedge_latency::{Attempt, Budget, SkipReason, Verdict};
use tower_test::mock;

use crate::support::*;

/// failsafe-go fails the whole call when the budget is empty.
#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_leaves_the_first_attempt_running() {
    let log = Log::default();
    let budget = Budget::ratio(0.0).burst(1);
    let layer = fixed(10).max_hedges(2).shared_budget(budget.clone());
    let (mut call, mut handle) = call!(layer.observer(log.clone()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    let held = budget.withdraw().unwrap();
    advance(ms(10)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    // The next stage checks the budget again.
    drop(held);
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let _hedge = next(&mut handle).await;
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(
        log.take(),
        [
            Started(1),
            Skipped(2, SkipReason::Denied),
            Started(3),
            Finished(1)
        ]
    );
}

/// gRPC's throttle allows extra attempts above half of its tokens.
#[tokio::test(start_paused = true)]
async fn every_failure_is_recorded_on_the_budget() {
    let budget = Budget::grpc_throttle(2, 1.0);
    let (mut call, mut handle) = call!(fixed(10).max_hedges(2).budget(budget));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let _first = next(&mut handle).await;
    primary.send_error("reset");
    advance(ms(10)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
}

/// A throttle counts successes and not calls. Otherwise a throttle with a whole token per call would always stay open.
#[tokio::test(start_paused = true)]
async fn only_successful_calls_open_a_throttle_again() {
    let throttle = Budget::grpc_throttle(2, 1.0);
    let judge = |outcome: &Result<u32, Error>, _: &Attempt| match outcome {
        Ok(404) => Verdict::Fatal,
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::transient(),
    };
    let layer = fixed(10).budget(throttle.clone()).classify_fn(judge);
    let (mut service, mut handle) = mock::spawn_layer::<u32, u32, _>(layer.build().unwrap());
    for (status, open) in [
        (503, false),
        (503, false),
        (404, false),
        (200, false),
        (200, true),
    ] {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        match status {
            503 => primary.send_error("503"),
            _ => primary.send_response(status),
        }
        assert_eq!(assert_ready!(call.poll()).is_ok(), status != 503);
        assert_eq!(throttle.withdraw().is_some(), open, "{status}");
    }
}

/// For budgets of every kind: rejections that cost the server no time must not pay for hedges.
#[tokio::test(start_paused = true)]
async fn each_success_deposits_once_unless_the_budget_is_shared() {
    let judge = |outcome: &Result<u32, Error>, _: &Attempt| match outcome {
        Ok(501) => Verdict::Fatal,
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::transient(),
    };
    for (shared, outcome, deposits) in [
        (false, Ok(200), true),
        (false, Ok(501), false),
        (false, Err("reset"), false),
        (true, Ok(200), false),
    ] {
        let budget = Budget::ratio(1.0).burst(1).initial(0);
        let layer = match shared {
            true => fixed(10).shared_budget(budget.clone()),
            false => fixed(10).budget(budget.clone()),
        };
        let (mut call, mut handle) = call!(layer.classify_fn(judge));
        assert_pending!(call.poll());
        let primary = next(&mut handle).await;
        assert!(budget.withdraw().is_none(), "the call has not ended");
        match outcome {
            Ok(status) => primary.send_response(status),
            Err(error) => primary.send_error(error),
        }
        assert_eq!(assert_ready!(call.poll()).is_ok(), outcome.is_ok());
        assert_eq!(
            budget.withdraw().is_some(),
            deposits,
            "{shared} {outcome:?}"
        );
    }
}
