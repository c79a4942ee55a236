use proptest::prelude::*;
use siphasher::sip::SipHasher13;

use super::*;
use crate::{
    Algorithm, Quota,
    algorithm::{self, Arithmetic, Bucket, FixedWindow, Words},
    arithmetic::tests::traffic::{Step, any_built, everyday},
    key::KeyBytes,
};

/// A key in a table, and the same key's state without a table.
struct Twins<A> {
    table: AtomicTable<A>,
    words: Words,
    key: Fingerprint,
}

impl<A: OneNumber> Twins<A> {
    /// Makes one request, and then the settlement of the step. Fails if the decisions of the two states differ.
    fn step(&mut self, nanos: u64, step: Step, quota: Option<&Quota>) -> Result<(), TestCaseError> {
        let (arithmetic, now) = (self.table.arithmetic, self.key.at(nanos));
        let take = Take {
            cost: step.cost,
            up_to: step.want,
            quota,
        };
        let expected = algorithm::charge(&arithmetic, &mut self.words, now, &take);
        let decision = if quota.is_none() && step.want <= step.cost {
            let fast = self.table.charge_own(self.key, nanos, step.cost);
            fast.decision(step.cost)
        } else {
            self.table.charge(self.key, nanos, &take)
        };
        prop_assert_eq!(decision, expected, "{:?}", take);
        if let Some(delta) = step.settle {
            self.table.settle(self.key, nanos, &take, delta);
            Arithmetic::settle(&arithmetic, &mut self.words, now, &take, delta);
        }
        let expected = Arithmetic::decide(&arithmetic, &self.words, now, &take);
        prop_assert_eq!(self.table.check(self.key, nanos, &take), expected);
        Ok(())
    }
}

/// Runs the requests, whose times may come in any order, if the state of this algorithm is one number.
fn run(
    algorithm: Algorithm,
    quota: Quota,
    name: u64,
    requests: impl Iterator<Item = (u64, Step, Option<Quota>)>,
) -> Result<(), TestCaseError> {
    fn each<A: OneNumber>(
        arithmetic: A,
        name: u64,
        requests: impl Iterator<Item = (u64, Step, Option<Quota>)>,
    ) -> Result<(), TestCaseError> {
        let hasher = SipHasher13::new_with_keys(0, 0);
        let mut twins = Twins {
            table: AtomicTable::new(arithmetic, 1).expect("valid"),
            words: Words::new(),
            key: Fingerprint::of(KeyBytes::Part(&name.to_le_bytes()), &hasher),
        };
        for (nanos, step, quota) in requests {
            twins.step(nanos, step, quota.as_ref())?;
        }
        Ok(())
    }
    match algorithm {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => each(
            Bucket::<false>::new(quota, None).expect("valid"),
            name,
            requests,
        ),
        Algorithm::LeakyQueue { max_wait } => each(
            Bucket::<true>::new(quota, Some(max_wait)).expect("valid"),
            name,
            requests,
        ),
        Algorithm::FixedWindow { staggered } => each(
            FixedWindow::new(quota, staggered).expect("valid"),
            name,
            requests,
        ),
        _ => Ok(()),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn a_table_decides_as_the_arithmetic_does_in_everyday_traffic(
        (algorithm, quota, steps) in everyday(),
        name: u64,
        other in prop::option::of(0_u64..300),
    ) {
        let mut now = 0;
        let requests = steps.into_iter().zip(0_u64..).map(|(step, number)| {
            now += step.wait;
            let other = other.filter(|_| number % 2 == 0);
            (now, step, other.map(|limit| Quota::new(limit, quota.window())))
        });
        run(algorithm, quota, name, requests)?;
    }

    #[test]
    fn a_table_decides_as_the_arithmetic_does_under_any_policy(
        (algorithm, quota) in any_built(),
        name: u64,
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
        run(algorithm, quota, name, requests)?;
    }
}
