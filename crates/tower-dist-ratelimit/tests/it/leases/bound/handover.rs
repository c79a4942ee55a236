//! Instances that give back what is left of their leases, when others lease for the same key.

use std::time::Duration;

use proptest::prelude::*;
use tokio::{task::JoinSet, time::sleep};
use tower_dist_ratelimit::{Limiter, OnError, Policy, Quota, Sharing};

use super::{Instance, Passed, excess, play};
use crate::wan::Wan;

/// One half of a fleet leases and gives back, the other half leases at the same time, and then comes more than can pass. Times are in
/// thousandths of the lease time.
#[derive(Clone, Debug)]
struct Handover {
    half: u32,
    lease_ms: u32,
    /// Tokens that come in a lease time, and the burst: in thousandths of what one half asks for.
    rate: u32,
    burst: u32,
    /// Requests to each instance, and what each costs from the 8th on.
    requests: u32,
    cost: u32,
    /// How long they take to come, when those who give back do, and how much later all is asked for.
    over: u32,
    back: u32,
    flood: u32,
    /// How long messages take: there, and back.
    away: (u32, u32),
}

fn handovers() -> impl Strategy<Value = Handover> {
    (
        (1_u32..=4, 80_u32..=400, 50_u32..1_500, 1_000_u32..8_000),
        (10_u32..40, 1_u32..12, 20_u32..700),
        (500_u32..1_000, 100_u32..1_000, (0_u32..60, 0_u32..60)),
    )
        .prop_map(
            |((half, lease_ms, rate, burst), (requests, cost, over), (back, flood, away))| {
                Handover {
                    half,
                    lease_ms,
                    rate,
                    burst,
                    requests,
                    cost,
                    over,
                    back,
                    flood,
                    away,
                }
            },
        )
}

impl Handover {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.into())
    }

    fn parts(&self, thousandths: u32) -> Duration {
        self.lease() * thousandths / 1_000
    }

    fn quota(&self) -> (u64, u64) {
        let asked = u64::from(self.half * (7 + (self.requests - 7) * self.cost));
        let of = |part: u32| (asked * u64::from(part) / 1_000).max(1);
        (of(self.rate), of(self.burst))
    }

    fn half(&self, wan: &Wan) -> Vec<Instance> {
        let (rate, burst) = self.quota();
        let limiter = || {
            let policy = Policy::new("bound", Quota::new(rate, self.lease()).burst(burst));
            Limiter::builder(wan.clone(), policy)
                .sharing(Sharing::leases_of(self.lease()))
                .backend_deadline(self.lease() / 8)
                .on_backend_error(OnError::Deny)
                .build()
                .unwrap()
        };
        (0..self.half)
            .map(|_| (limiter(), JoinSet::new()))
            .collect()
    }

    async fn lease_some(&self, passed: &Passed, half: &mut [Instance]) {
        for number in 1..=self.requests {
            passed.ask(half, if number < 8 { 1 } else { self.cost });
            sleep(self.parts(self.over) / self.requests).await;
        }
    }

    /// When requests were let through, and how many tokens were given back.
    async fn play(&self) -> Vec<(Duration, u32)> {
        let (wan, passed) = (Wan::away(Duration::ZERO), Passed::now());
        wan.is_off(self.parts(self.away.0), self.parts(self.away.1));
        let (mut one, mut other) = (self.half(&wan), self.half(&wan));
        self.lease_some(&passed, &mut one).await;
        sleep(self.parts(self.back.saturating_sub(self.over))).await;
        for (limiter, _) in &one {
            limiter.return_leases().await.unwrap();
        }
        self.lease_some(&passed, &mut other).await;
        sleep(self.parts(self.flood.saturating_sub(self.over))).await;
        let flood = u32::try_from(self.quota().1).unwrap() / self.half + 50;
        for _ in 0..flood {
            passed.ask(&mut other, 1);
            tokio::task::yield_now().await;
        }
        for (_, tasks) in one.iter_mut().chain(&mut other) {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        }
        passed.sorted()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn a_fleet_that_gives_back_admits_no_more_than_one_that_does_not(handover in handovers()) {
        let passed = play(handover.play());
        let excess = excess(&passed, handover.quota(), handover.lease());
        prop_assert!(excess <= 0, "{excess} parts too many, {} requests", passed.len());
    }
}
