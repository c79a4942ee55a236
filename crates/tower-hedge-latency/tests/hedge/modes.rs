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
async fn shadow_mode_counts_the_hedges_that_it_would_send() {
    let log = Log::default();
    let layer = fixed(10)
        .max_hedges(3)
        .budget(Budget::ratio(0.0).initial(0));
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
        // No timer is armed for a hedge that will not be sent.
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
    assert_eq!((counts.cancelled, counts.cancelled_late), (1, 1));
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

/// A retuned percentile keeps its samples, and reads the other quantile from them.
#[tokio::test(start_paused = true)]
async fn learned_latencies_outlive_a_change_of_the_trigger() {
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
    handle.retune(&fixed(70).build().unwrap()).unwrap();
    assert_eq!(handle.delay(), Some(ms(70)));
    assert!(handle.delays_by_key().is_empty());
    handle.retune(&percentile(0.95)).unwrap();
    assert_eq!(handle.delay(), learned);
    assert_eq!(handle.counts().calls, 300);
}

/// 1 ms to 100 ms, evenly: the 50th, 95th and 99th percentile are far apart.
#[tokio::test(start_paused = true)]
async fn a_retuned_layer_reads_the_other_percentile_immediately() {
    let percentile = |quantile| HedgeLayer::builder().percentile(quantile).build().unwrap();
    let layer = percentile(0.95);
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    let mut call = async |millis| {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let primary = next(&mut mock).await;
        advance(ms(millis)).await;
        primary.send_response(1);
        assert_ready_ok!(call.poll());
    };
    for n in 0..400 {
        call(1 + n * 37 % 100).await;
    }
    for (quantile, expected) in [(0.99, 99), (0.5, 50), (0.95, 95)] {
        handle.retune(&percentile(quantile)).unwrap();
        let delay = handle.delay().unwrap();
        assert!(
            delay.abs_diff(ms(expected)) < ms(4),
            "{delay:?} at {quantile}"
        );
    }
    // A call that began before the change is not recorded for the new percentile.
    let before = handle.delay();
    call(95).await;
    assert_eq!(handle.delay(), before);
}

#[tokio::test(start_paused = true)]
async fn a_retuned_layer_takes_over_the_mode() {
    let handle = fixed(10).build().unwrap().handle();
    let shadow = fixed(20).mode(Mode::Shadow);
    handle.retune(&shadow.build().unwrap()).unwrap();
    assert_eq!(
        (handle.mode(), handle.delay()),
        (Mode::Shadow, Some(ms(20)))
    );
}

/// All settings of the first layer differ from the defaults.
#[tokio::test(start_paused = true)]
async fn a_layer_that_is_retuned_keeps_the_settings_that_are_not_given() {
    let budget = Budget::ratio(0.5).burst(1);
    let layer = HedgeLayer::builder().percentile(0.9).initial_delay(ms(50));
    let layer = layer.max_hedges(3).min_delay(ms(30)).max_delay(ms(70));
    let layer = layer.budget(budget.clone()).mode(Mode::Shadow);
    let handle = layer.build().unwrap().handle();
    let given = |layer: tower_hedge_latency::HedgeLayerBuilder| layer.build().unwrap();
    let layer = HedgeLayer::builder;

    handle.retune(&given(layer().max_delay(ms(40)))).unwrap();
    assert_eq!(
        (handle.mode(), handle.delay()),
        (Mode::Shadow, Some(ms(40)))
    );
    let error = handle.retune(&given(layer().min_delay(ms(45))));
    let expected = "max_delay is 40ms, but must be at least the min_delay of 45ms";
    assert_eq!(error.unwrap_err().to_string(), expected);
    let error = handle.retune(&given(layer().percentile(0.4)));
    let expected = "percentile is 0.4, but must be at least 0.5 with a budget.ratio of 0.5, or the ratio at least 0.6";
    assert_eq!(error.unwrap_err().to_string(), expected);
    // The trigger is fixed for a while.
    handle.retune(&given(fixed(20).mode(Mode::On))).unwrap();
    assert_eq!((handle.mode(), handle.delay()), (Mode::On, Some(ms(20))));
    handle.set_mode(Mode::Off);
    handle.retune(&given(layer().percentile(0.6))).unwrap();
    assert_eq!((handle.mode(), handle.delay()), (Mode::Off, Some(ms(40))));
}

#[tokio::test(start_paused = true)]
async fn every_hedge_is_counted_as_sent_or_by_the_reason_for_its_skip() {
    let budget = Budget::ratio(0.0).burst(2);
    let layer = fixed(10).max_hedges(4).budget(budget).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    mock.allow(3);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(7));
    assert_pending!(call.poll());
    let mut attempts = vec![next(&mut mock).await];
    // Two hedges are sent, the third is denied, and the fourth does not become ready.
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

#[tokio::test(start_paused = true)]
async fn each_setting_changes_alone() {
    let layer = HedgeLayer::builder().initial_delay(ms(50)).build().unwrap();
    let handle = layer.handle();
    assert_eq!(
        (handle.quantile(), handle.delay()),
        (Some(0.95), Some(ms(50)))
    );
    handle.set_percentile(0.9).unwrap();
    handle.set_max_delay(ms(40)).unwrap();
    assert_eq!(
        (handle.quantile(), handle.delay()),
        (Some(0.9), Some(ms(40)))
    );
    handle.set_min_delay(ms(30)).unwrap();
    let error = handle.set_max_delay(ms(20)).unwrap_err();
    let expected = "max_delay is 20ms, but must be at least the min_delay of 30ms";
    assert_eq!(error.to_string(), expected);
    handle.set_budget(Budget::ratio(0.2).initial(3)).unwrap();
    assert_eq!(handle.budget().available(), 3);
    let error = handle.set_budget(Budget::ratio(0.05)).unwrap_err();
    let expected = "percentile is 0.9, but must be at least 0.95 with a budget.ratio of 0.05, or the ratio at least 0.1";
    assert_eq!(error.to_string(), expected);
    handle.set_fixed(ms(20));
    assert_eq!((handle.quantile(), handle.delay()), (None, Some(ms(20))));
    let error = handle.set_min_delay(ms(1)).unwrap_err();
    let expected = "min_delay is set, but must be unset besides fixed";
    assert_eq!(error.to_string(), expected);
    assert_eq!((handle.mode(), handle.budget().available()), (Mode::On, 3));
}

/// `delays` and `fan_out` do not use the maximum number of hedges, but the layer keeps it for its next trigger.
#[tokio::test(start_paused = true)]
async fn a_trigger_with_its_own_number_of_hedges_leaves_the_maximum_number_as_it_is() {
    let layer = fixed(10).max_hedges(3).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    let mut expect_hedges = async |expected| {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(7));
        assert_pending!(call.poll());
        let mut attempts = vec![next(&mut mock).await];
        for _ in 0..expected {
            advance(ms(10)).await;
            assert_pending!(call.poll());
            attempts.push(next(&mut mock).await);
        }
        advance(ms(100)).await;
        assert_pending!(call.poll());
        assert_no_request(&mut mock);
        attempts.pop().unwrap().send_response(1);
        assert_eq!(assert_ready_ok!(call.poll()), 1);
    };
    expect_hedges(3).await;
    let builder = HedgeLayer::builder;
    let delays = builder().delays([ms(5), ms(15)]).build().unwrap();
    handle.retune(&delays).unwrap();
    expect_hedges(2).await;
    handle.set_fixed(ms(10));
    expect_hedges(3).await;
    handle
        .retune(&builder().fan_out(3).build().unwrap())
        .unwrap();
    handle.retune(&fixed(10).build().unwrap()).unwrap();
    expect_hedges(3).await;
}

/// The trigger determines the number of hedges, and the error names it.
#[tokio::test(start_paused = true)]
async fn delays_replace_the_number_of_hedges_and_cannot_be_given_one() {
    let layer = fixed(10).max_hedges(2).build().unwrap();
    let handle = layer.handle();
    handle.set_max_hedges(3).unwrap();
    let delays = HedgeLayer::builder().delays([ms(5)]).build().unwrap();
    handle.retune(&delays).unwrap();
    let expected = "max_hedges is set, but must be unset besides delays";
    assert_eq!(handle.set_max_hedges(2).unwrap_err().to_string(), expected);
    let given = HedgeLayer::builder().max_hedges(2).build().unwrap();
    assert_eq!(handle.retune(&given).unwrap_err().to_string(), expected);
    assert_eq!(handle.delay(), Some(ms(5)));

    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    assert_ready_ok!(service.poll_ready());
    let mut call = task::spawn(service.call(7));
    assert_pending!(call.poll());
    let _primary = next(&mut mock).await;
    advance(ms(100)).await;
    assert_pending!(call.poll());
    let _hedge = next(&mut mock).await;
    assert_no_request(&mut mock);
}
