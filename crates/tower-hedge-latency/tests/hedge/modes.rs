//! The handle: counts, modes, and changes while calls are made.

use tokio::time::advance;
use tokio_test::{assert_pending, assert_ready_ok, task};
use tower_hedge_latency::{Budget, HedgeLayer, Mode, SkipReason};
use tower_test::mock;

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_off_passes_calls_through_and_learns_nothing() {
    let layer = fixed(10).mode(Mode::Off).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    for mode in [Mode::Off, Mode::On] {
        handle.set_mode(mode);
        assert_eq!(handle.mode(), mode);
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut mock).await;
        advance(ms(10)).await;
        assert_pending!(call.poll());
        match mode {
            Mode::On => drop(next(&mut mock).await),
            _ => assert_no_request(&mut mock),
        }
        primary.send_response(1);
        assert_eq!(assert_ready_ok!(call.poll()), 1);
    }
    let counts = handle.counts();
    assert_eq!((counts.calls, counts.late, counts.hedges), (2, 1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_counts_what_would_have_been_sent() {
    let log = Log::default();
    let layer = fixed(10).max_hedges(3).budget(Budget::none());
    let layer = layer.observer(log.clone()).mode(Mode::Shadow).build();
    let layer = layer.unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    for (millis, cancelled) in [(9, false), (25, false), (30, true)] {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut mock).await;
        advance(ms(millis)).await;
        // No timer is armed for what is not sent.
        assert!(!call.is_woken());
        assert_no_request(&mut mock);
        match cancelled {
            true => drop(call),
            false => {
                primary.send_response(1);
                assert_ready_ok!(call.poll());
            }
        }
    }
    let counts = handle.counts();
    assert_eq!((counts.calls, counts.late, counts.shadowed), (3, 2, 5));
    assert_eq!((counts.hedges, counts.denied), (0, 0));
    let shadow = |attempt| Skipped(attempt, SkipReason::Shadow);
    assert_eq!(
        log.take(),
        [
            Started(1),
            Finished(1),
            Started(1),
            shadow(2),
            shadow(3),
            Finished(1),
            Started(1),
            shadow(2),
            shadow(3),
            shadow(4),
            Cancelled,
        ]
    );
}

/// A percentile that is retuned keeps what it has learned, and reads the other quantile from it.
#[tokio::test(start_paused = true)]
async fn what_was_learned_outlives_a_change_of_the_trigger() {
    let percentile = |quantile| HedgeLayer::builder().percentile(quantile).build().unwrap();
    let layer = percentile(0.95);
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    for _ in 0..300 {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut mock).await;
        advance(ms(20)).await;
        primary.send_response(1);
        assert_ready_ok!(call.poll());
    }
    let learned = handle.delay();
    assert!(learned.is_some());
    handle.retune(&fixed(70).build().unwrap());
    assert_eq!(handle.delay(), Some(ms(70)));
    assert!(handle.delays_by_key().is_empty());
    handle.retune(&percentile(0.95));
    assert_eq!(handle.delay(), learned);
    assert_eq!(handle.counts().calls, 300);
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_is_retuned_takes_over_the_mode() {
    let handle = fixed(10).build().unwrap().handle();
    let shadow = fixed(20).mode(Mode::Shadow);
    handle.retune(&shadow.build().unwrap());
    assert_eq!(
        (handle.mode(), handle.delay()),
        (Mode::Shadow, Some(ms(20)))
    );
}

#[tokio::test(start_paused = true)]
async fn every_hedge_is_counted_by_what_became_of_it() {
    let budget = Budget::ratio(0.0).burst(2);
    let layer = fixed(10).max_hedges(4).budget(budget).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    mock.allow(3);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(7));
    assert_pending!(call.poll());
    let mut attempts = vec![next(&mut mock).await];
    // Sent, sent, denied; and one that does not get ready.
    for hedge in 1..=4 {
        advance(ms(10)).await;
        assert_pending!(call.poll());
        if hedge <= 2 {
            attempts.push(next(&mut mock).await);
        }
    }
    attempts.pop().unwrap().send_response(3);
    assert_eq!(assert_ready_ok!(call.poll()), 3);
    let counts = handle.counts();
    assert_eq!(
        (counts.calls, counts.late, counts.hedges, counts.hedge_wins),
        (1, 1, 2, 1)
    );
    assert_eq!((counts.denied, counts.not_ready), (2, 0));
    assert_eq!(
        (counts.failed, counts.cancelled, counts.ineligible),
        (0, 0, 0)
    );
}
