//! Statistics of the learned trigger over many calls, on a clock that jumps from one event to the next.
//!
//! tokio rounds every timer up to 1 ms, so 1 ms of these services is 100 ms on the clock. The random numbers have a
//! fixed seed.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]
#![expect(clippy::cast_precision_loss, reason = "counts are small")]

#[cfg(feature = "http")]
mod overload;
#[cfg(feature = "http")]
mod replicas;
mod services;

use std::array::from_fn;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use rand::RngExt;
use rand::rngs::StdRng;
use services::{Answer, Class, Draw, Inner, Load, World, bimodal, heavy_tail, ms};
use tower::Layer;
use tower_hedge_latency::{Budget, HedgeCounts, HedgeHandle, HedgeLayer, HedgeLayerBuilder};

/// Without a budget, so that only the trigger decides.
fn percentile(quantile: f64) -> HedgeLayerBuilder {
    HedgeLayer::builder()
        .percentile(quantile)
        .window(ms(10_000.0))
        .budget(Budget::unlimited())
}

fn p95() -> HedgeLayerBuilder {
    percentile(0.95)
}

/// A world with its layer's handle.
struct Watched {
    world: World,
    handle: HedgeHandle,
}

impl Watched {
    fn new(
        builder: HedgeLayerBuilder,
        answer: impl Fn(&mut StdRng, Class, usize) -> Answer + Send + Sync + 'static,
    ) -> Self {
        let mut handle = None;
        let layer = |inner: Inner| {
            let layer = builder.build().unwrap();
            handle = Some(layer.handle());
            layer.layer(inner)
        };
        let world = World::new(layer, answer);
        let handle = handle.unwrap();
        Self { world, handle }
    }

    /// Draws every latency from one distribution.
    fn drawing(builder: HedgeLayerBuilder, draw: Draw) -> Self {
        Self::new(builder, move |random, _, _| Answer::after(draw(random)))
    }

    /// Makes these calls. Returns the counts before and after them.
    fn run(&self, load: Load) -> Run {
        let before = self.handle.counts();
        self.world.run(load);
        let after = self.handle.counts();
        Run { before, after }
    }
}

struct Run {
    before: HedgeCounts,
    after: HedgeCounts,
}

impl Run {
    fn calls(&self) -> f64 {
        (self.after.calls - self.before.calls) as f64
    }

    /// Hedges sent, as a share of the calls.
    fn hedges(&self) -> f64 {
        (self.after.hedges - self.before.hedges) as f64 / self.calls()
    }

    /// Calls that were slower than the trigger, as a share of all calls.
    fn late(&self) -> f64 {
        (self.after.late - self.before.late) as f64 / self.calls()
    }
}

/// Asserts that the rate is within a tenth of the target.
fn assert_near(what: &str, rate: f64, target: f64) {
    assert_within(what, rate, target, 0.1);
}

fn assert_within(what: &str, rate: f64, target: f64, tolerance: f64) {
    let off = (rate / target - 1.0).abs();
    assert!(off <= tolerance, "{what}: {rate:.4}, not {target:.4}");
}

/// tower records the winner's latency, and hedges 9.9 % at a 95th percentile of the heavy tail.
fn the_hedge_rate_is_the_quantiles_share(draw: Draw) {
    for (quantile, calls) in [(0.9, 20_000), (0.95, 30_000), (0.99, 60_000)] {
        let watched = Watched::drawing(percentile(quantile), draw);
        watched.run(Load::calls(calls / 5));
        let rate = watched.run(Load::calls(calls)).hedges();
        assert_near(&format!("at {quantile}"), rate, 1.0 - quantile);
    }
}

#[test]
fn the_hedge_rate_is_the_quantiles_share_with_two_modes() {
    the_hedge_rate_is_the_quantiles_share(bimodal);
}

#[test]
fn the_hedge_rate_is_the_quantiles_share_with_a_heavy_tail() {
    the_hedge_rate_is_the_quantiles_share(heavy_tail);
}

/// A percentile of the calls without a hedge would never recover, because those are the fast ones. A percentile of the
/// winners' latencies would take several windows.
#[test]
fn a_service_that_gets_three_times_slower_is_followed_within_20_s() {
    let factor = Arc::new(AtomicU32::new(1));
    let now = Arc::clone(&factor);
    let watched = Watched::new(p95(), move |random, _, _| {
        Answer::after(heavy_tail(random) * f64::from(now.load(Relaxed)))
    });
    let load = |calls| Load {
        callers: 50,
        ..Load::calls(calls)
    };
    // The calls of three windows.
    let fast = watched.run(load(100_000));
    assert_near("before", fast.hedges(), 0.05);

    factor.store(3, Relaxed);
    let start = watched.world.elapsed();
    let mut first = 0.0_f64;
    while watched.world.elapsed() - start < 20_000.0 {
        first = first.max(watched.run(load(1_000)).hedges());
    }
    assert!(
        first > 0.3,
        "nearly half of the calls are late at first: {first}"
    );
    assert_near("after 20 s", watched.run(load(12_000)).hedges(), 0.05);
    assert_near("after 30 s", watched.run(load(30_000)).hedges(), 0.05);
}

/// Each attempt, also a hedge, slows down all others.
#[test]
fn hedges_that_slow_the_service_down_do_not_lead_to_more_hedges() {
    let watched = Watched::new(p95(), |random, _, out| {
        let crowd = (out as f64 / 20.0).powi(3);
        Answer::after(bimodal(random) * (1.0 + crowd))
    });
    watched.run(Load::calls(10_000));
    for minute in 0..3 {
        let rate = watched.run(Load::calls(10_000)).hedges();
        assert_near(&format!("minute {minute}"), rate, 0.05);
    }
}

/// A caller that gives up before the trigger is no observation. A caller that gives up right after the trigger leaves a
/// hedge no time to win.
#[test]
fn impatient_callers_do_not_make_the_trigger_spiral() {
    for patience in [12.0, 20.0, 30.0] {
        let watched = Watched::drawing(p95(), heavy_tail);
        let load = Load {
            patience,
            ..Load::calls(10_000)
        };
        watched.run(load);
        let (second, third) = (watched.run(load), watched.run(load));
        let (second, third) = (second.late(), third.late());
        assert_within("late calls settle", third, second, 0.15);
        assert!(third < 0.1, "{third} late with {patience} ms");
        let hedges = watched.run(load).hedges();
        assert!(hedges < 0.02, "{hedges} hedged with {patience} ms");
    }
}

/// Callers time out while a tenth of the calls still run, so the 95th percentile is unknown. The count of late calls
/// that are dropped shows this, and a `max_delay` corrects it.
#[test]
fn callers_that_time_out_before_a_hedge_can_win_are_counted_and_max_delay_helps() {
    let load = Load {
        patience: 22.0,
        ..Load::calls(20_000)
    };
    let run = |builder: HedgeLayerBuilder| {
        let watched = Watched::drawing(builder, heavy_tail);
        watched.run(load);
        let run = watched.run(load);
        let share = |count: fn(&HedgeCounts) -> u64| {
            (count(&run.after) - count(&run.before)) as f64 / run.calls()
        };
        let wins = share(|counts| counts.hedge_wins);
        let (cancelled, late) = (share(|counts| counts.cancelled), run.late());
        (
            wins,
            cancelled,
            share(|counts| counts.cancelled_late) / late,
        )
    };
    let alone = run(p95());
    let bounded = run(p95().max_delay(ms(11.0)));
    assert!(alone.0 < 0.01 && alone.2 > 0.7, "{alone:?}");
    assert!(
        bounded.0 > 0.05 && bounded.1 < alone.1 / 2.0,
        "{bounded:?} {alone:?}"
    );
    assert!(bounded.2 < 0.5, "{bounded:?}");
}

#[test]
fn fast_failures_leave_the_trigger_where_it_is() {
    let watched = Watched::new(p95(), |random, _, _| match random.random_bool(0.5) {
        true => Answer::failure_after(0.5),
        false => Answer::after(heavy_tail(random)),
    });
    watched.run(Load::calls(20_000));
    // As a share of the calls that did not fail immediately.
    assert_near(
        "hedges",
        2.0 * watched.run(Load::calls(40_000)).hedges(),
        0.05,
    );
}

/// tower forgets everything within two periods without calls.
#[test]
fn idle_hours_do_not_erase_what_was_learned() {
    let watched = Watched::drawing(p95(), heavy_tail);
    watched.run(Load::calls(10_000));
    let delay = watched.handle.delay();
    watched.world.idle(8.0 * 3_600_000.0);
    assert_eq!(watched.handle.delay(), delay);
    let rate = watched.run(Load::calls(2_000)).hedges();
    assert_within("after the night", rate, 0.05, 0.25);
}

#[test]
fn two_requests_a_second_are_enough_to_learn_from() {
    let watched = Watched::drawing(p95(), heavy_tail);
    let load = |calls| Load {
        callers: 1,
        pause: 484.0,
        ..Load::calls(calls)
    };
    watched.run(load(198));
    assert_eq!(watched.handle.delay(), None);
    watched.run(load(10));
    assert!(watched.handle.delay().is_some());
    assert_near("hedges", watched.run(load(8_000)).hedges(), 0.05);
}

/// Exactly 3 % of the responses take 115 ms, and so would a hedge that is sent then.
#[test]
fn hedges_that_cannot_win_are_held_back() {
    let watched = Watched::new(percentile(0.99), |random, _, _| {
        Answer::after(if random.random_bool(0.97) {
            15.0
        } else {
            115.0
        })
    });
    watched.run(Load::calls(60_000));
    let run = watched.run(Load::calls(20_000));
    assert!(
        run.hedges() < 0.005 && run.late() > 0.025,
        "{}",
        run.hedges()
    );
    assert_eq!(watched.handle.counts().hedge_wins, 0);
}

/// 95 % of the calls are of a fast class, and 5 % of a class that is 20 times slower. Without keys nearly all hedges
/// would go to the slow class.
#[test]
fn with_keys_each_class_has_its_own_share_hedged() {
    for keyed in [false, true] {
        let attempts: Arc<[AtomicU32; 2]> = Arc::new(from_fn(|_| AtomicU32::new(0)));
        let seen = Arc::clone(&attempts);
        let answer = move |random: &mut StdRng, class: Class, _| {
            seen[class as usize].fetch_add(1, Relaxed);
            Answer::after(heavy_tail(random) * if class == 0 { 1.0 } else { 20.0 })
        };
        let builder = p95();
        let world = match keyed {
            true => {
                let builder = builder.key(|class: &Class| *class);
                World::new(|inner| builder.build().unwrap().layer(inner), answer)
            }
            false => World::new(|inner| builder.build().unwrap().layer(inner), answer),
        };
        let load = |calls| Load {
            second_class: 0.05,
            ..Load::calls(calls)
        };
        world.run(load(20_000));
        let read = || from_fn(|class| attempts[class].load(Relaxed));
        let (before, calls_before): ([u32; 2], _) = (read(), world.calls());
        world.run(load(60_000));
        let (after, calls): ([u32; 2], _) = (read(), world.calls());
        let rate: [f64; 2] = from_fn(|class| {
            let calls = calls[class] - calls_before[class];
            f64::from(after[class] - before[class] - calls) / f64::from(calls)
        });
        match keyed {
            true => {
                assert_near("the fast class", rate[0], 0.05);
                assert_within("the slow class", rate[1], 0.05, 0.2);
            }
            false => assert!(rate[0] < 0.02 && rate[1] > 0.6, "{rate:?}"),
        }
    }
}

/// A budget of 2 % raises the default percentile, and pays for the slowest 2 % of the calls instead of the first ones.
#[test]
fn tokens_go_to_the_slowest_calls() {
    let budget = Budget::ratio(0.02).initial(0);
    let builder = HedgeLayer::builder().window(ms(10_000.0)).budget(budget);
    let watched = Watched::drawing(builder, heavy_tail);
    watched.run(Load::calls(20_000));
    let run = watched.run(Load::calls(40_000));
    assert_within("late", run.late(), 0.02, 0.15);
    assert_within("hedged", run.hedges(), 0.02, 0.15);
}
