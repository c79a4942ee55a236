//! Algorithms whose state is one number: `granted` computes the new state, and `decide` the decision from the old one.

use proptest::prelude::*;

use super::traffic::{Step, any_built, everyday};
use crate::{
    Algorithm, Decision, Quota,
    algorithm::{Bucket, FixedWindow, Now, OneNumber, Take},
};

/// One key's state, which changes only by the granted tokens.
struct Swapped<A> {
    one: A,
    state: u64,
    bits: u64,
}

impl<A: OneNumber> Swapped<A> {
    fn at(&self, nanos: u64) -> A::Moment {
        let key = self.bits;
        self.one.at(Now { nanos, key })
    }

    /// Returns the decision at this time. Fails if it differs from the granted tokens.
    fn decided(&self, nanos: u64, take: &Take<'_>) -> Result<Decision, TestCaseError> {
        let now = self.at(nanos);
        let told = OneNumber::decide(&self.one, self.state, now, take);
        let granted = self.one.granted(self.state, now, take);
        prop_assert_eq!(granted, told.granted, "{:?} of {:?}", told, take);
        Ok(told)
    }

    /// Decides at this time, just before `retry_after` and at `retry_after`.
    fn step(&mut self, nanos: u64, take: &Take<'_>, delta: i64) -> Result<(), TestCaseError> {
        let told = self.decided(nanos, take)?;
        if let (false, Some(wait)) = (told.allowed, told.retry_after) {
            let then = nanos.saturating_add(super::nanos(wait));
            self.decided(then.saturating_sub(1), take)?;
            self.decided(then, take)?;
        }
        let now = self.at(nanos);
        if told.granted > 0 {
            self.state = OneNumber::take(&self.one, self.state, now, told.granted);
        }
        self.state = OneNumber::settle(&self.one, self.state, now, delta);
        self.decided(nanos, take)?;
        Ok(())
    }
}

/// Runs the requests, whose times may come in any order, if the state of this algorithm is one number.
fn run(
    algorithm: Algorithm,
    quota: Quota,
    bits: u64,
    requests: impl Iterator<Item = (u64, Step, Option<Quota>)>,
) -> Result<(), TestCaseError> {
    fn each<A: OneNumber>(
        one: A,
        bits: u64,
        requests: impl Iterator<Item = (u64, Step, Option<Quota>)>,
    ) -> Result<(), TestCaseError> {
        let mut key = Swapped {
            one,
            state: 0,
            bits,
        };
        for (nanos, step, quota) in requests {
            let take = Take {
                cost: step.cost,
                up_to: step.want,
                quota: quota.as_ref(),
            };
            key.step(nanos, &take, step.settle.unwrap_or(0))?;
        }
        Ok(())
    }
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            each(Bucket::new(quota, None).unwrap(), bits, requests)
        }
        Algorithm::LeakyQueue { max_wait } => {
            each(Bucket::new(quota, Some(max_wait)).unwrap(), bits, requests)
        }
        Algorithm::FixedWindow { staggered } => {
            each(FixedWindow::new(quota, staggered).unwrap(), bits, requests)
        }
        _ => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_state_takes_the_tokens_that_the_decision_grants_in_everyday_traffic(
        (algorithm, quota, steps) in everyday(),
        bits: u64,
        other in prop::option::of(0_u64..300),
    ) {
        let mut now = 0;
        let requests = steps.into_iter().zip(0_u64..).map(|(step, number)| {
            now += step.wait;
            let other = other.filter(|_| number % 2 == 0);
            (now, step, other.map(|limit| Quota::new(limit, quota.window())))
        });
        run(algorithm, quota, bits, requests)?;
    }

    #[test]
    fn the_state_takes_the_tokens_that_the_decision_grants_under_any_policy(
        (algorithm, quota) in any_built(),
        bits: u64,
        steps in prop::collection::vec((any::<[u64; 3]>(), any::<[u32; 3]>(), any::<i64>()), 1..20),
    ) {
        let requests = steps.into_iter().map(|(numbers, shifts, delta)| {
            let [at, cost, want] = [0, 1, 2].map(|i| numbers[i] >> (shifts[i] % 64));
            // Half of the costs are near the burst.
            let burst = quota.burst_size();
            let cost = if shifts[0] % 2 == 0 { cost } else { burst - cost % burst.min(3) };
            let settle = (shifts[1] % 3 == 0).then_some(delta >> (shifts[2] % 64));
            (at, Step { wait: 0, cost, want, settle }, None)
        });
        run(algorithm, quota, bits, requests)?;
    }
}
