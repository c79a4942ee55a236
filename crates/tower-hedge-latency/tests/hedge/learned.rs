//! The learned trigger.

use std::time::Duration;

use tokio::time::advance;
use tokio_test::task::Spawn;
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower_hedge_latency::{Budget, HedgeHandle, HedgeLayer, HedgeLayerBuilder, SkipReason};
use tower_test::mock::{self, Handle, SendResponse};

use crate::support::*;

type Service = tower_hedge_latency::Hedge<mock::Mock<u32, u32>>;
type Call = Spawn<<Service as tower::Service<u32>>::Future>;

fn p95() -> HedgeLayerBuilder {
    let builder = HedgeLayer::builder().percentile(0.95);
    builder.budget(Budget::unlimited())
}

/// A trigger that falls when more than half of the recorded calls are fast.
fn median() -> HedgeLayerBuilder {
    p95().percentile(0.5)
}

/// A layer over a mock.
struct Learning {
    service: mock::Spawn<Service>,
    mock: Handle<u32, u32>,
    handle: HedgeHandle,
}

impl Learning {
    fn new(builder: HedgeLayerBuilder) -> Self {
        let layer = builder.build().unwrap();
        let handle = layer.handle();
        let (service, mock) = mock::spawn_layer(layer);
        Self {
            service,
            mock,
            handle,
        }
    }

    async fn call(&mut self) -> (Call, SendResponse<u32>) {
        assert_ready_ok!(self.service.poll_ready());
        let mut call = task::spawn(self.service.call(7));
        assert_pending!(call.poll());
        let request = next(&mut self.mock).await;
        (call, request)
    }

    /// Makes `calls` calls that take `millis` milliseconds each.
    async fn answer(&mut self, calls: u32, millis: u64) {
        for _ in 0..calls {
            let (mut call, primary) = self.call().await;
            advance(ms(millis)).await;
            primary.send_response(1);
            assert_eq!(assert_ready_ok!(call.poll()), 1);
        }
    }

    fn delay(&self) -> Option<Duration> {
        self.handle.delay()
    }
}

/// The upper bound of the bucket that holds 20 ms, from 19,968 to 20,480 µs.
const UP_TO_20_MS: Option<Duration> = Some(Duration::from_micros(20_480));

#[tokio::test(start_paused = true)]
async fn nothing_is_hedged_before_there_are_enough_samples() {
    let mut learning = Learning::new(p95());
    learning.answer(199, 20).await;
    assert_eq!(learning.delay(), None);
    let (mut call, primary) = learning.call().await;
    advance(Duration::from_secs(3600)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut learning.mock);
    primary.send_response(1);
    assert_ready_ok!(call.poll());
    learning.answer(8, 20).await;
    assert_eq!(learning.delay(), UP_TO_20_MS);
}

#[tokio::test(start_paused = true)]
async fn the_initial_delay_serves_until_then() {
    let mut learning = Learning::new(p95().initial_delay(ms(50)));
    assert_eq!(learning.delay(), Some(ms(50)));
    let (mut call, _primary) = learning.call().await;
    advance(ms(49)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut learning.mock);
    advance(ms(1)).await;
    assert_pending!(call.poll());
    next(&mut learning.mock).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

/// tokio's timer has a resolution of 1 ms, and rounds up.
#[tokio::test(start_paused = true)]
async fn a_call_slower_than_the_percentile_is_hedged() {
    let mut learning = Learning::new(p95().max_hedges(2));
    learning.answer(300, 20).await;
    let (mut call, _primary) = learning.call().await;
    for due in [21, 41] {
        advance(ms(due - 1) - elapsed(due)).await;
        assert_pending!(call.poll());
        assert_no_request(&mut learning.mock);
        advance(ms(1)).await;
        assert_pending!(call.poll());
        let _hedge = next(&mut learning.mock).await;
        std::mem::forget(_hedge);
    }
    drop(call);
    assert_eq!(learning.handle.counts().hedges, 2);
    assert_eq!(learning.handle.counts().late, 1);
}

/// The time of a hedge that is due after `due` milliseconds.
fn elapsed(due: u64) -> Duration {
    if due == 21 { ms(0) } else { ms(21) }
}

#[tokio::test(start_paused = true)]
async fn the_delay_keeps_to_its_bounds() {
    let mut learning = Learning::new(p95().min_delay(ms(5)).max_delay(ms(30)));
    learning.answer(300, 1).await;
    assert_eq!(learning.delay(), Some(ms(5)));
    learning.answer(300, 100).await;
    learning.answer(300, 100).await;
    assert_eq!(learning.delay(), Some(ms(30)));
}

/// Each of these calls would lower the threshold if the layer recorded it.
#[tokio::test(start_paused = true)]
async fn the_trigger_learns_nothing_from_calls_that_end_without_success_before_it() {
    let mut learning = Learning::new(median());
    learning.answer(300, 20).await;
    for _ in 0..2_000 {
        let (mut call, primary) = learning.call().await;
        advance(ms(1)).await;
        primary.send_error("refused");
        assert_ready_err!(call.poll());
        let (call, _primary) = learning.call().await;
        advance(ms(1)).await;
        drop(call);
    }
    learning.answer(100, 20).await;
    assert_eq!(learning.delay(), UP_TO_20_MS);
    let counts = learning.handle.counts();
    assert_eq!(
        (counts.calls, counts.cancelled, counts.failed),
        (4_400, 2_000, 2_000)
    );
    assert_eq!((counts.late, counts.hedges), (0, 0));
}

/// Otherwise a stalled service would seem fast, because only its fast responses would count.
#[tokio::test(start_paused = true)]
async fn calls_past_the_trigger_count_with_every_outcome() {
    for cancelled in [true, false] {
        let mut learning = Learning::new(p95());
        learning.answer(300, 20).await;
        // Until these calls are 5 % of the sample.
        for _ in 0..60 {
            if learning.delay() > UP_TO_20_MS {
                break;
            }
            let (mut call, primary) = learning.call().await;
            advance(ms(500)).await;
            if cancelled {
                drop(call);
                continue;
            }
            assert_pending!(call.poll());
            next(&mut learning.mock).await.send_error("reset");
            primary.send_error("reset");
            assert_ready_err!(call.poll());
        }
        assert!(learning.delay().unwrap() > ms(400), "{cancelled}");
    }
}

/// tower records the winner's latency, so the responses of hedges make the service seem faster than it is.
#[tokio::test(start_paused = true)]
async fn a_response_of_a_hedge_counts_as_late() {
    let mut learning = Learning::new(p95().max_delay(ms(25)));
    learning.answer(300, 20).await;
    for _ in 0..400 {
        let (mut call, _primary) = learning.call().await;
        advance(ms(40)).await;
        assert_pending!(call.poll());
        next(&mut learning.mock).await.send_response(2);
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
    // The bound holds it; without the bound it would be 40 ms or more.
    assert_eq!(learning.delay(), Some(ms(25)));
    assert_eq!(learning.handle.counts().hedge_wins, 400);
}

/// The win of a hedge on failure is no observation of the first attempt's latency.
#[tokio::test(start_paused = true)]
async fn the_trigger_learns_nothing_from_a_fast_failure_that_a_hedge_replaces() {
    let mut learning = Learning::new(median().hedge_on_failure(true));
    learning.answer(300, 20).await;
    for _ in 0..1_000 {
        let (mut call, primary) = learning.call().await;
        primary.send_error("refused");
        assert_pending!(call.poll());
        advance(ms(1)).await;
        next(&mut learning.mock).await.send_response(2);
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
    learning.answer(100, 20).await;
    assert_eq!(learning.delay(), UP_TO_20_MS);
}

/// Also if the layer has no other sample.
#[tokio::test(start_paused = true)]
async fn fast_failures_that_hedges_replace_make_no_trigger() {
    let mut learning = Learning::new(median().initial_delay(ms(50)).hedge_on_failure(true));
    for _ in 0..300 {
        let (mut call, primary) = learning.call().await;
        primary.send_error("refused");
        assert_pending!(call.poll());
        next(&mut learning.mock).await.send_response(2);
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
    assert_eq!(learning.delay(), Some(ms(50)));
}

/// Of 90 late calls, a layer's budget pays for 10 hedges and the ratio's share of the earlier calls.
#[tokio::test(start_paused = true)]
async fn the_default_budget_pays_for_the_percentile_and_starts_with_ten_tokens() {
    let layer = HedgeLayer::builder;
    for (builder, hedges) in [
        (layer(), 14),
        (layer().budget(Budget::ratio(0.05)), 14),
        (layer().percentile(0.95), 14),
        (layer().percentile(0.95).budget(Budget::ratio(0.05)), 14),
        (layer().percentile(0.9), 18),
        (layer().percentile(0.9).budget(Budget::ratio(0.1)), 18),
        (layer().percentile(0.99), 10),
    ] {
        let builder = builder.initial_delay(ms(10)).window(Duration::MAX);
        let what = format!("{builder:?}");
        let mut learning = Learning::new(builder);
        let mut sent = 0;
        for _ in 0..90 {
            let (mut call, primary) = learning.call().await;
            advance(ms(10)).await;
            assert_pending!(call.poll());
            let counts = learning.handle.counts();
            if counts.hedges > sent {
                sent = counts.hedges;
                let _hedge = next(&mut learning.mock).await;
            }
            assert_no_request(&mut learning.mock);
            primary.send_response(1);
            assert_ready_ok!(call.poll());
        }
        let counts = learning.handle.counts();
        assert_eq!(
            (counts.hedges, counts.denied),
            (hedges, 90 - hedges),
            "{what}"
        );
    }
}

#[test]
fn a_percentile_that_the_budget_cannot_pay_for_is_an_error() {
    let error = |budget| {
        let builder = HedgeLayer::builder().percentile(0.9).budget(budget);
        builder.build().map_err(|error| error.to_string()).err()
    };
    assert_eq!(
        error(Budget::ratio(0.05)).as_deref(),
        Some(
            "percentile is 0.9, but must be at least 0.95 with a budget.ratio of 0.05, or the ratio at least 0.1"
        )
    );
    assert!(error(Budget::ratio(0.0)).is_some());
    assert_eq!(error(Budget::ratio(0.1)), None);
    // Tokens that refill with time may pay for the rest.
    assert_eq!(error(Budget::ratio(0.05).per_second(1)), None);
    assert_eq!(error(Budget::unlimited()), None);
}

#[cfg(feature = "http")]
#[test]
fn a_budget_by_key_has_to_pay_for_the_percentile() {
    let budgets = tower_hedge_latency::Budgets::new(Budget::ratio(0.05));
    let by_host = HedgeLayer::builder().percentile(0.9).http();
    let by_host = by_host.budget_by(budgets, |request| request.authority());
    assert!(by_host.build().is_err());
}

#[tokio::test(start_paused = true)]
async fn hedges_that_never_win_are_held_back() {
    let log = Log::default();
    let builder = p95()
        .initial_delay(ms(10))
        .window(Duration::MAX)
        .max_delay(ms(10));
    let layer = builder.observer(log.clone()).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    for call in 0..600 {
        assert_ready_ok!(service.poll_ready());
        let mut running = task::spawn(service.call(7));
        assert_pending!(running.poll());
        let primary = next(&mut mock).await;
        advance(ms(10)).await;
        assert_pending!(running.poll());
        // The layer sends 200 of 200 hedges, then one of two, then one of four.
        let held_back = log.take().contains(&Skipped(2, SkipReason::HeldBack));
        assert_eq!(held_back, call >= 200 && call % 2 == 1, "call {call}");
        primary.send_response(1);
        // Drops the hedge.
        assert_ready_ok!(running.poll());
        while let std::task::Poll::Ready(Some(_)) = mock.poll_request() {}
        log.take();
    }
    assert_eq!(handle.counts().hedges, 400);
    assert_eq!(handle.counts().held_back, 200);
    assert_eq!(handle.counts().late, 600);
}

#[tokio::test(start_paused = true)]
async fn each_key_has_a_delay_of_its_own() {
    let layer = p95().key(|request: &u32| request % 2).build().unwrap();
    let handle = layer.handle();
    let (mut service, mut mock) = mock::spawn_layer::<u32, u32, _>(layer);
    for request in 0..600 {
        assert_ready_ok!(service.poll_ready());
        let mut call = task::spawn(service.call(request));
        assert_pending!(call.poll());
        let (_, respond) = mock.next_request().await.unwrap();
        advance(ms(if request % 2 == 0 { 5 } else { 200 })).await;
        respond.send_response(1);
        assert_ready_ok!(call.poll());
    }
    let delays = handle.delays_by_key();
    let names: Vec<_> = delays.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["0", "1"]);
    assert!(delays[0].1.unwrap() < ms(6) && delays[1].1.unwrap() > ms(199));
    assert_eq!(handle.delay(), None, "no call is without a key");
}

/// A machine that slept during a call and between calls.
#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_hours_makes_one_call_late_and_no_more() {
    let mut learning = Learning::new(p95());
    learning.answer(300, 20).await;
    for _ in 0..5 {
        let (mut call, primary) = learning.call().await;
        advance(Duration::from_secs(8 * 3600)).await;
        primary.send_response(1);
        // Both responses are available, and the first attempt is polled first.
        assert_eq!(assert_ready_ok!(call.poll()), 1);
        advance(Duration::from_secs(8 * 3600)).await;
        learning.answer(10, 20).await;
        assert_eq!(learning.delay(), UP_TO_20_MS);
    }
    let counts = learning.handle.counts();
    assert_eq!((counts.late, counts.hedges), (0, 0));
}

/// First attempts that never end. While too many calls are late, the trigger rises in each window by at most the
/// duration of a hedge.
#[tokio::test(start_paused = true)]
async fn attempts_that_never_end_do_not_make_the_trigger_run_away() {
    let mut learning = Learning::new(p95());
    learning.answer(300, 20).await;
    let mut expected = ms(21);
    for n in 0..1_000 {
        if n % 10 > 0 {
            learning.answer(1, 20).await;
            continue;
        }
        let due = learning.delay().unwrap();
        assert!(due <= expected + ms(25), "{due:?} after {n} calls");
        expected = expected.max(due);
        let (mut call, _primary) = learning.call().await;
        advance(due + ms(1)).await;
        assert_pending!(call.poll());
        let hedge = next(&mut learning.mock).await;
        advance(ms(20)).await;
        hedge.send_response(2);
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
    // 1,000 calls take 22 s: two windows.
    let delay = learning.delay().unwrap();
    assert!(delay > ms(40) && delay < ms(130), "{delay:?}");
}
