//! The race: the times of the attempts, and the winner.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, assert_ready, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{Attempt, Budget, HedgeLayer, Verdict};
use tower_test::mock;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_call_that_answers_before_the_trigger_is_not_hedged() {
    let log = Log::default();
    let (mut call, mut handle) = call!(fixed(10).observer(log.clone()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(9)).await;
    assert_pending!(call.poll());
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_no_request(&mut handle);
    assert_eq!(log.take(), [Started(1), Finished(1)]);
}

#[tokio::test(start_paused = true)]
async fn the_hedge_is_sent_at_the_trigger_and_wins() {
    let log = Log::default();
    let (mut call, mut handle) = call!(fixed(10).observer(log.clone()));
    assert_pending!(call.poll());
    let _primary = next(&mut handle).await;
    advance(ms(9)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert!(call.is_woken());
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert!(call.is_woken());
    assert_eq!(assert_ready_ok!(call.poll()), 2);
    assert_eq!(log.take(), [Started(1), Started(2), Finished(2)]);
}

#[tokio::test(start_paused = true)]
async fn a_tie_goes_to_the_oldest_attempt() {
    for oldest in 1..=3 {
        let (mut call, mut handle) = call!(fixed(10).max_hedges(2));
        let mut attempts = Vec::new();
        for _ in 0..3 {
            assert_pending!(call.poll());
            attempts.push(next(&mut handle).await);
            advance(ms(10)).await;
        }
        // The youngest attempt answers first, and the oldest of the answered attempts is polled first.
        for (number, attempt) in [1, 2, 3].into_iter().zip(attempts).skip(oldest - 1).rev() {
            attempt.send_response(number);
        }
        assert_eq!(
            assert_ready_ok!(call.poll()),
            u32::try_from(oldest).unwrap()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn delays_count_from_the_calls_start() {
    let delays = HedgeLayer::builder().delays([ms(21), ms(42)]);
    for layer in [delays, fixed(21).max_hedges(2)] {
        let (mut call, mut handle) = call!(layer);
        assert_pending!(call.poll());
        let mut attempts = vec![next(&mut handle).await];
        for _ in 0..2 {
            advance(ms(20)).await;
            assert_pending!(call.poll());
            assert_no_request(&mut handle);
            advance(ms(1)).await;
            assert_pending!(call.poll());
            attempts.push(next(&mut handle).await);
        }
        advance(ms(1_000)).await;
        assert_pending!(call.poll());
        assert_no_request(&mut handle);
        attempts.remove(0).send_response(1);
        assert_eq!(assert_ready_ok!(call.poll()), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn fan_out_sends_all_attempts_at_the_first_poll() {
    let (mut call, mut handle) = call!(HedgeLayer::builder().fan_out(3));
    assert_pending!(call.poll());
    let _first = next(&mut handle).await;
    let _second = next(&mut handle).await;
    next(&mut handle).await.send_response(3);
    assert_eq!(assert_ready_ok!(call.poll()), 3);
    assert_no_request(&mut handle);
}

/// The time counts from the call, not from its first poll.
#[tokio::test(start_paused = true)]
async fn a_call_that_is_polled_late_is_hedged_immediately() {
    let (mut call, mut handle) = call!(fixed(10));
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let _primary = next(&mut handle).await;
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failure_before_the_trigger_is_returned_immediately() {
    let (mut call, mut handle) = call!(fixed(10));
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("refused");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "refused");
    assert_no_request(&mut handle);
}

/// tower::hedge takes the first `Err`: a hedge that is rejected immediately beats a healthy first attempt.
#[tokio::test(start_paused = true)]
async fn a_failed_hedge_does_not_beat_a_healthy_first_attempt() {
    let log = Log::default();
    let (mut call, mut handle) = call!(fixed(10).observer(log.clone()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("refused");
    assert_pending!(call.poll());
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(log.take(), [Started(1), Started(2), Failed(2), Finished(1)]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_first_attempt_leaves_the_race_to_its_hedges() {
    let log = Log::default();
    let layer = fixed(10).max_hedges(2).observer(log.clone());
    let (mut call, mut handle) = call!(layer);
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let _second = next(&mut handle).await;
    primary.send_error("reset");
    assert_pending!(call.poll());
    // The next hedge is still sent when it is due.
    advance(ms(10)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(3);
    assert_eq!(assert_ready_ok!(call.poll()), 3);
    assert_eq!(
        log.take(),
        [Started(1), Started(2), Failed(1), Started(3), Finished(3)]
    );
}

#[tokio::test(start_paused = true)]
async fn when_all_fail_the_first_attempts_outcome_is_returned() {
    let (mut call, mut handle) = call!(fixed(10));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    let hedge = next(&mut handle).await;
    primary.send_error("the first");
    assert_pending!(call.poll());
    hedge.send_error("the second");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "the first");
}

#[tokio::test(start_paused = true)]
async fn a_retryable_response_does_not_win() {
    let classify = |outcome: &Result<u32, Error>, _: &Attempt| match outcome {
        Ok(503) | Err(_) => Verdict::transient(),
        Ok(_) => Verdict::Success,
    };
    let (mut call, mut handle) = call!(fixed(10).classify_fn(classify));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(10)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(503);
    assert_pending!(call.poll());
    primary.send_response(200);
    assert_eq!(assert_ready_ok!(call.poll()), 200);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_success_has_no_winner() {
    let judge = |outcome: &Result<u32, Error>, _: &Attempt| match outcome {
        Ok(501) => Verdict::Fatal,
        Ok(_) => Verdict::Success,
        Err(_) => Verdict::transient(),
    };
    for outcome in [Ok(501), Err("reset")] {
        for hedged in [false, true] {
            let log = Log::default();
            let layer = fixed(10).classify_fn(judge).observer(log.clone());
            let layer = layer.build().unwrap();
            let handle = layer.handle();
            let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
            assert_ready_ok!(service.poll_ready());
            let mut call = task::spawn(service.call(7));
            assert_pending!(call.poll());
            let mut attempts = vec![next(&mut mock).await];
            if hedged {
                advance(ms(10)).await;
                assert_pending!(call.poll());
                attempts.push(next(&mut mock).await);
            }
            for attempt in attempts {
                match outcome {
                    Ok(status) => attempt.send_response(status),
                    Err(error) => attempt.send_error(error),
                }
            }
            assert_eq!(assert_ready!(call.poll()).is_ok(), outcome.is_ok());
            let counts = handle.counts();
            assert_eq!((counts.failed, counts.hedge_wins), (1, 0));
            assert_eq!(log.take().pop(), Some(NoWinner), "{outcome:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_largest_delay_is_never_due() {
    let (mut call, mut handle) = call!(HedgeLayer::builder().fixed(Duration::MAX));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(Duration::from_secs(365 * 24 * 3600)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
}

/// tokio's timer rounds up, which overflows in the last millisecond of the clock.
#[tokio::test(start_paused = true)]
async fn the_largest_delay_that_the_clock_can_hold_does_not_panic() {
    let now = Instant::now();
    let fits = |nanos: u128| {
        let secs = u64::try_from(nanos / 1_000_000_000).unwrap();
        let part = u32::try_from(nanos % 1_000_000_000).unwrap();
        Some(Duration::new(secs, part)).filter(|delay| now.checked_add(*delay).is_some())
    };
    let (mut low, mut high) = (0, 1_u128 << 93);
    while high - low > 1 {
        let middle = low.midpoint(high);
        match fits(middle) {
            Some(_) => low = middle,
            None => high = middle,
        }
    }
    let (mut call, mut handle) = call!(HedgeLayer::builder().fixed(fits(low).unwrap()));
    assert_pending!(call.poll());
    let primary = next(&mut handle).await;
    advance(ms(1_000)).await;
    assert_pending!(call.poll());
    primary.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
}

/// A copy of the request takes memory, and a recorded body takes up to the replay limit.
#[tokio::test(start_paused = true)]
async fn the_copy_of_the_request_is_dropped_with_the_last_hedge_that_is_denied() {
    let request = Arc::new(());
    let layer = fixed(10)
        .max_hedges(2)
        .budget(Budget::ratio(0.0).initial(0));
    let layer = layer.build().unwrap();
    let service = service_fn(|request: Arc<()>| async move {
        sleep(ms(100)).await;
        drop(request);
        Ok::<_, Infallible>(())
    });
    let mut call = task::spawn(layer.layer(service).oneshot(Arc::clone(&request)));
    for copies in [1, 1, 0] {
        assert_pending!(call.poll());
        // The test's request, the request in flight, and the copies.
        assert_eq!(Arc::strong_count(&request), 2 + copies);
        advance(ms(10)).await;
    }
    assert_eq!(layer.handle().counts().denied, 2);
}
