//! Compares every algorithm with the model under the same traffic.

mod bytes;
mod clocks;
mod ends;
pub(crate) mod key;
mod model;
mod overrides;
pub(crate) mod traffic;
mod worst;

use std::time::Duration;

use proptest::prelude::*;

use self::{
    key::Key,
    model::Model,
    traffic::{Step, any_built, everyday},
};
use crate::{
    Algorithm, Decision, Quota,
    algorithm::{FixedWindow, Take},
};

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap()
}

pub(crate) fn take(cost: u64) -> Take<'static> {
    Take {
        cost,
        up_to: cost,
        quota: None,
    }
}

/// Buckets and queues count in the units of a pace, which round down once. The other algorithms are exact.
fn rounding(algorithm: Algorithm) -> u64 {
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket | Algorithm::LeakyQueue { .. } => 1,
        _ => 0,
    }
}

/// Whether a decision equals the model's decision at `at`, or up to `around` nanoseconds later.
fn agrees(model: &Model, step: Step, at: u64, ours: Decision, around: u64) -> bool {
    let ours = (ours.allowed, ours.granted, ours.granted + ours.remaining);
    let expected = |at| {
        let one = model.decide(at, step.cost, step.want);
        (one.allowed, one.granted, one.granted + one.remaining)
    };
    let (now, later) = (expected(at), expected(at + around));
    (now.0..=later.0).contains(&ours.0)
        && (now.1..=later.1).contains(&ours.1)
        && (now.2..=later.2).contains(&ours.2)
}

/// Whether a time equals the model's time, or is up to `around` nanoseconds earlier.
fn is_time(ours: u64, model: u64, around: u64) -> bool {
    ours <= model && ours + around >= model
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn every_algorithm_decides_as_its_model_does((algorithm, quota, steps) in everyday()) {
        let mut key = Key::new(algorithm, quota).unwrap();
        let mut model = Model::new(algorithm, quota);
        let around = rounding(algorithm);
        let mut now = 0;
        for step in steps {
            now += step.wait;
            let decision = key.decide(now, &Take { cost: step.cost, up_to: step.want, quota: None });
            prop_assert!(agrees(&model, step, now, decision, around), "{decision:?} at {now}, but {model:?}");
            prop_assert_eq!(decision.limit, quota.limit());
            let delay = model.decide(now, step.cost, step.want).delay;
            prop_assert!(is_time(nanos(decision.delay), delay, around), "{decision:?} {delay}");
            key.take(now, &take(step.cost), decision.granted);
            model.take(now, decision.granted);
            let reset = now + nanos(decision.reset_after);
            let expected = model.unused_at(now);
            prop_assert!(is_time(reset, expected, around), "{decision:?} at {now}, but unused at {expected}");
            if let Some(delta) = step.settle {
                key.settle(now, delta);
                model.settle(now, delta);
            }
        }
    }

    #[test]
    fn rejected_one_nanosecond_before_retry_after_and_allowed_at_it((algorithm, quota, steps) in everyday()) {
        let mut key = Key::new(algorithm, quota).unwrap();
        let mut model = Model::new(algorithm, quota);
        let mut now = 0;
        for step in steps {
            now += step.wait;
            let decision = key.decide(now, &take(step.cost));
            match decision.retry_after {
                None => prop_assert!(step.cost > quota.burst_size() && !decision.allowed),
                Some(wait) if decision.allowed => prop_assert_eq!(wait, Duration::ZERO),
                Some(wait) => {
                    let then = now + nanos(wait);
                    prop_assert!(then > now);
                    prop_assert!(!key.decide(then - 1, &take(step.cost)).allowed);
                    prop_assert!(key.decide(then, &take(step.cost)).allowed);
                    let expected = model.allowed_at(now, step.cost).unwrap();
                    prop_assert!(is_time(then, expected, rounding(algorithm)), "{then}, but {expected}");
                }
            }
            key.take(now, &take(step.cost), decision.granted);
            model.take(now, decision.granted);
            if let Some(delta) = step.settle {
                key.settle(now, delta);
                model.settle(now, delta);
            }
        }
    }

    #[test]
    fn a_key_counts_as_unused_at_reset_after_and_not_before((algorithm, quota, steps) in everyday()) {
        let mut key = Key::new(algorithm, quota).unwrap();
        let mut now = 0;
        for step in steps {
            now += step.wait;
            let decision = key.decide(now, &take(step.cost));
            key.take(now, &take(step.cost), decision.granted);
            let reset = now + nanos(decision.reset_after);
            prop_assert_eq!(key.pressure(reset), 0);
            prop_assert!(reset == now || key.pressure(reset - 1) > 0);
            prop_assert_eq!(key.decide(reset, &take(0)).reset_after, Duration::ZERO);
        }
    }

    #[test]
    fn a_clock_that_jumps_back_admits_nothing_more(
        (algorithm, quota, steps) in everyday(),
        back in any::<u64>(),
        shift in 0_u32..64,
    ) {
        let mut key = Key::new(algorithm, quota).unwrap();
        let mut now = 0;
        for step in steps {
            now += step.wait;
            let earlier = now.saturating_sub(back >> shift);
            let decision = key.decide(now, &take(step.cost));
            let before = key.decide(earlier, &take(step.cost));
            prop_assert!(decision.allowed || !before.allowed);
            prop_assert!(before.remaining <= decision.remaining + decision.granted);
            // `retry_after` is also exact after the jump.
            if let (false, Some(wait)) = (before.allowed, before.retry_after) {
                let then = earlier + nanos(wait);
                prop_assert!(!key.decide(then - 1, &take(step.cost)).allowed);
                prop_assert!(key.decide(then, &take(step.cost)).allowed);
            }
            let at = if step.settle.is_some() { earlier } else { now };
            let granted = if at == now { decision.granted } else { before.granted };
            key.take(at, &take(step.cost), granted);
            let told = if at == now { decision } else { before };
            if told.allowed {
                let reset = at + nanos(told.reset_after);
                prop_assert_eq!(key.pressure(reset), 0);
                prop_assert!(reset == at || key.pressure(reset - 1) > 0);
            }
        }
    }

    #[test]
    fn nothing_overflows_under_any_policy(
        (algorithm, quota) in any_built(),
        steps in prop::collection::vec((any::<u64>(), 0_u32..64, any::<u64>(), 0_u32..64, any::<i64>()), 1..20),
    ) {
        let mut key = Key::new(algorithm, quota).unwrap();
        for (at, a, cost, b, delta) in steps {
            let (at, cost) = (at >> a, cost >> b);
            for want in [cost, u64::MAX] {
                let take = Take { cost, up_to: want, quota: None };
                let decision = key.decide(at, &take);
                prop_assert_eq!(decision.allowed, decision.granted >= cost);
                if decision.allowed {
                    key.take(at, &take, decision.granted);
                }
                key.settle(at, delta);
                key.decide(at, &Take { cost: cost.min(quota.limit()), ..take });
                key.pressure(at);
            }
        }
    }

    /// A key's windows are the common windows, shifted to an earlier time.
    #[test]
    fn a_phase_only_shifts_the_windows(bits: u64, (_, quota, steps) in everyday()) {
        let quota = Quota::new(quota.limit(), quota.window());
        let aligned = Algorithm::FixedWindow { staggered: false };
        let Ok(windows) = FixedWindow::new(quota, true) else {
            return Ok(());
        };
        let mut key = Key::staggered(windows, bits);
        let mut model = Model::new(aligned, quota);
        let mut now = 0;
        let phase = u64::try_from((u128::from(bits) * quota.window().as_nanos()) >> 64).unwrap();
        for step in steps {
            now += step.wait;
            let take = Take { cost: step.cost, up_to: step.want, quota: None };
            let decision = key.decide(now, &take);
            prop_assert!(agrees(&model, step, now + phase, decision, 0), "{decision:?}");
            if let (false, Some(wait)) = (decision.allowed, decision.retry_after) {
                let expected = model.allowed_at(now + phase, step.cost).unwrap();
                prop_assert_eq!(now + phase + nanos(wait), expected);
            }
            key.take(now, &take, decision.granted);
            model.take(now + phase, decision.granted);
        }
    }
}
