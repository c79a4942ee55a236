//! Instances that return unused leases while others lease for the same key.

use std::time::Duration;

use proptest::prelude::*;
use tokio::{task::JoinSet, time::sleep};
use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};

use super::{Instance, Passed, excess, play};
use crate::wan::Wan;

/// One half of a fleet leases tokens and returns them. The other half leases at the same time. Then more requests
/// arrive than can pass. Times are in thousandths of the lease time.
#[derive(Clone, Debug)]
struct Handover {
    half: u32,
    lease_ms: u32,
    /// Tokens per lease time, and the burst, in thousandths of the demand of one half.
    rate: u32,
    burst: u32,
    /// Requests to each instance, and the cost of each from the 8th on, in either half.
    requests: u32,
    costs: (u32, u32),
    /// Duration of each half's requests, delay of the second half, and delay of the final demand. The first half
    /// returns its tokens after the second half has leased; before that, the bucket is full.
    over: u32,
    back: u32,
    flood: u32,
    /// Delay of messages, to the backend and back.
    away: (u32, u32),
}

fn handovers() -> impl Strategy<Value = Handover> {
    (
        (1_u32..=4, 80_u32..=400, 20_u32..500, 1_000_u32..5_000),
        (9_u32..24, (1_u32..6, 4_u32..24), 20_u32..100),
        (200_u32..850, 300_u32..1_000, (0_u32..30, 0_u32..30)),
    )
        .prop_map(
            |((half, lease_ms, rate, burst), (requests, costs, over), (back, flood, away))| {
                Handover {
                    half,
                    lease_ms,
                    rate,
                    burst,
                    requests,
                    costs,
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
        let asked = u64::from(self.half * (7 + (self.requests - 7) * self.costs.1));
        let of = |part: u32| (asked * u64::from(part) / 1_000).max(1);
        (of(self.rate), of(self.burst))
    }

    fn half(&self, wan: &Wan, sharing: Consistency) -> Vec<Instance> {
        let (rate, burst) = self.quota();
        let limiter = || {
            let policy = Policy::new("bound", Quota::new(rate, self.lease()).burst(burst));
            Limiter::builder(wan.clone(), policy)
                .consistency(sharing)
                .backend_timeout(self.lease() / 8)
                .failure_mode(FailureMode::Closed)
                .build()
                .unwrap()
        };
        (0..self.half)
            .map(|_| (limiter(), JoinSet::new()))
            .collect()
    }

    async fn lease_some(&self, passed: &Passed, half: &mut [Instance], cost: u32) {
        for number in 1..=self.requests {
            passed.ask(half, if number < 8 { 1 } else { cost });
            sleep(self.parts(self.over) / self.requests).await;
        }
    }

    /// Returns the time and cost of every admitted request.
    async fn play(&self) -> Vec<(Duration, u32)> {
        let (wan, passed) = (Wan::away(Duration::ZERO), Passed::now());
        wan.is_off(self.parts(self.away.0), self.parts(self.away.1));
        let leases = Consistency::leased_for(self.lease());
        let [mut one, mut other] = [(); 2].map(|()| self.half(&wan, leases));
        // A leasing limiter does not ask for the last token immediately, so exact limiters do.
        let mut exact = self.half(&wan, Consistency::Exact);
        self.lease_some(&passed, &mut one, self.costs.0).await;
        sleep(self.parts(self.back)).await;
        self.lease_some(&passed, &mut other, self.costs.1).await;
        for (limiter, _) in &one {
            limiter.return_leases().await.unwrap();
        }
        sleep(self.parts(self.flood)).await;
        // More than could pass if all returned tokens existed twice.
        let (rate, burst) = self.quota();
        let flood = u32::try_from(burst + 2 * rate).unwrap() / self.half + 50;
        for _ in 0..flood {
            passed.ask(&mut other, 1);
            passed.ask(&mut one, 1);
            passed.ask(&mut exact, 1);
            tokio::task::yield_now().await;
        }
        for (_, tasks) in one.iter_mut().chain(&mut other).chain(&mut exact) {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        }
        passed.sorted()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 20, ..ProptestConfig::default() })]

    #[test]
    fn a_fleet_that_returns_leases_admits_no_more_than_a_fleet_that_does_not(handover in handovers()) {
        let passed = play(handover.play());
        let excess = excess(&passed, handover.quota(), handover.lease());
        prop_assert!(excess <= 0, "{excess} parts too many, {} requests", passed.len());
    }
}
