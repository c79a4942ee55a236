//! Hedges that follow a failure immediately.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::limit::ConcurrencyLimitLayer;
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{Attempt, Budget, HedgeLayerBuilder, SkipReason, Verdict};
use tower_test::mock;

use crate::support::*;

fn eager(hedges: u32) -> HedgeLayerBuilder {
    fixed(10).max_hedges(hedges).hedge_on_failure(true)
}

#[tokio::test(start_paused = true)]
async fn a_failure_sends_the_next_hedge_without_waiting_for_its_time() {
    let log = Log::default();
    let (mut call, mut handle) = call!(eager(1).observer(log.clone()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(3)).await;
    primary.send_error("reset");
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
    assert_eq!(log.take(), [Started(1), Failed(1), Started(2), Finished(2)]);
}

#[tokio::test(start_paused = true)]
async fn each_failure_sends_one_and_the_rest_keep_their_times() {
    let (mut call, mut handle) = call!(eager(3));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("the first");
    assert_pending!(call.poll());
    // The failure of a hedge, too.
    next(&mut handle).await.send_error("the second");
    assert_pending!(call.poll());
    let _third = next(&mut handle).await;
    assert_no_request(&mut handle);
    advance(ms(29)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(4);
    assert_eq!(assert_ready_ok!(call.poll()), 4);
}

#[tokio::test(start_paused = true)]
async fn when_no_hedges_remain_the_first_failure_is_returned() {
    let (mut call, mut handle) = call!(eager(1));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("the first");
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("the second");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "the first");
}

#[tokio::test(start_paused = true)]
async fn a_retuned_layer_takes_over_hedge_on_failure() {
    let layer = fixed(10).build().unwrap();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer.clone());
    for (other, hedges) in [(eager(1), true), (fixed(10).hedge_on_failure(false), false)] {
        layer.handle().retune(&other.build().unwrap()).unwrap();
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        next(&mut mock).await.send_error("reset");
        if hedges {
            assert_pending!(call.poll());
            next(&mut mock).await.send_response(2);
            assert_eq!(assert_ready_ok!(call.poll()), 2);
        } else {
            assert_eq!(assert_ready_err!(call.poll()).to_string(), "reset");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_token_or_a_ready_service_the_failure_is_returned_immediately() {
    let log = Log::default();
    let layer = eager(1)
        .budget(Budget::ratio(0.0).initial(0))
        .observer(log.clone());
    let (mut call, mut handle) = call!(layer);
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("reset");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "reset");
    let denied = Skipped(2, SkipReason::Denied);
    assert_eq!(log.take(), [Started(1), Failed(1), denied, NoWinner]);

    let (mut call, mut handle) = call!(eager(1).observer(log.clone()), ready: 1);
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("reset");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "reset");
    let not_ready = Skipped(2, SkipReason::NotReady);
    assert_eq!(log.take(), [Started(1), Failed(1), not_ready, NoWinner]);
}

/// The primary holds the only permit, and the due hedge waits for it.
#[tokio::test(start_paused = true)]
async fn a_failure_sends_the_hedge_that_waits_for_its_permit() {
    for hedges in [1, 2] {
        let log = Log::default();
        let layer = eager(hedges).observer(log.clone()).build().unwrap();
        let handle = layer.handle();
        let calls = Arc::new(AtomicU32::new(0));
        let failing_at_first = service_fn(move |(): ()| {
            let is_first = calls.fetch_add(1, Relaxed) == 0;
            async move {
                sleep(ms(15)).await;
                if is_first { Err("reset") } else { Ok(()) }
            }
        });
        let limited = ConcurrencyLimitLayer::new(1).layer(failing_at_first);
        let start = Instant::now();
        layer.layer(limited).oneshot(()).await.unwrap();
        assert_eq!(start.elapsed(), ms(15 + 15));
        assert_eq!((handle.counts().hedges, handle.counts().hedge_wins), (1, 1));
        let mut expected = vec![Started(1), Failed(1), Started(2), Finished(2)];
        if hedges == 2 {
            expected.insert(3, Skipped(3, SkipReason::NotReady));
        }
        assert_eq!(log.take(), expected);
    }
}

/// The permit goes to another call that has waited longer.
#[tokio::test(start_paused = true)]
async fn a_failure_is_returned_immediately_if_the_waiting_hedge_gets_no_permit() {
    let layer = eager(1).build().unwrap();
    let failing = service_fn(|(): ()| async {
        sleep(ms(15)).await;
        Err::<(), _>("reset")
    });
    let limited = ConcurrencyLimitLayer::new(1).layer(failing);
    let mut other = limited.clone();
    let start = Instant::now();
    let call = layer.layer(limited).oneshot(());
    let wait = async {
        sleep(ms(5)).await;
        // Holds the permit after it gets it.
        other.ready().await.unwrap();
        sleep(ms(100)).await;
    };
    let (outcome, ()) = tokio::join!(call, async {
        let _ = tokio::time::timeout(ms(50), wait).await;
    });
    assert_eq!(outcome, Err("reset"));
    assert!(start.elapsed() <= ms(50));
    assert_eq!(layer.handle().counts().not_ready, 1);
}

#[tokio::test(start_paused = true)]
async fn a_failure_that_is_not_retryable_ends_the_call() {
    let fatal = |outcome: &Result<u32, Error>, _: &_| match outcome {
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::Fatal,
    };
    let (mut call, mut handle) = call!(eager(1).classify_fn(fatal));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("forbidden");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "forbidden");
    assert_no_request(&mut handle);
}

/// Classifies the error "busy" as throttled, with a wait of `millis` milliseconds.
fn busy(millis: u64) -> impl Fn(&Result<u32, Error>, &Attempt) -> Verdict + Clone {
    move |outcome, _| match outcome {
        Ok(_) => Verdict::Success,
        Err(error) if error.to_string() == "busy" => Verdict::throttled().after(ms(millis)),
        Err(_) => Verdict::transient(),
    }
}

/// The third attempt is sent at 20 ms and fails at 22 ms; the fourth is due at 30 ms.
#[tokio::test(start_paused = true)]
async fn a_failure_sends_no_hedge_during_a_wait_that_a_server_demanded() {
    for (wait, first_fails, fourth_is_sent) in [(5, 23, 30), (30, 23, 52), (5, 27, 27)] {
        let (mut call, mut handle) = call!(eager(3).classify_fn(busy(wait)));
        let mut attempts = Vec::new();
        for millis in [10, 10, 2] {
            assert_pending!(call.poll());
            attempts.push(next(&mut handle).await);
            advance(ms(millis)).await;
        }
        attempts.pop().unwrap().send_error("busy");
        assert_pending!(call.poll());
        advance(ms(first_fails - 22)).await;
        attempts.remove(0).send_error("reset");
        for _ in first_fails..fourth_is_sent {
            assert_pending!(call.poll());
            assert_no_request(&mut handle);
            advance(ms(1)).await;
        }
        assert_pending!(call.poll());
        next(&mut handle).await.send_response(4);
        assert_eq!(assert_ready_ok!(call.poll()), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn a_demanded_wait_of_zero_is_no_wait() {
    let (mut call, mut handle) = call!(eager(1).classify_fn(busy(0)));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("busy");
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}
