//! The bound of a fleet: any interval D admits at most the limit of D + the lease time.

mod handover;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use proptest::prelude::*;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep},
};
use tower_dist_ratelimit::{Consistency, FailureMode, Limiter, Policy, Quota};

use crate::wan::Wan;

/// A fleet and its events.
#[derive(Clone, Debug)]
struct Story {
    instances: u32,
    lease_ms: u32,
    /// Tokens per lease time, and the burst, in thousandths of the highest demand of the first morning.
    rate: u32,
    burst: u32,
    days: Vec<Day>,
}

/// Requests that make the key hot, silence, and then more requests than can pass. Times are in thousandths of the lease
/// time.
#[derive(Clone, Debug)]
struct Day {
    /// Requests to each instance, evenly spaced.
    morning: u32,
    /// Cost of each request from the 8th on, so that leases can exceed the tokens used before.
    cost: u32,
    over: u32,
    /// Delay of messages in the morning, to the backend and back.
    slow: (u32, u32),
    silence: u32,
    /// Delay of messages after the morning.
    fast: (u32, u32),
    /// The instance that crashes meanwhile and is replaced.
    crash: Option<u32>,
}

/// Answers take no longer than a lease. An exact request is admitted when its answer arrives, which is later than the
/// backend counts it by the delay of the answer. Messages to the backend can take longer.
fn days() -> impl Strategy<Value = Day> {
    let slow = (0_u32..2_000, 0_u32..850);
    let fast = prop_oneof![Just((0, 0)), (0_u32..1_500, 0_u32..850)];
    let silence = prop_oneof![0_u32..5_000, 5_000_u32..60_000];
    let crash = prop::option::weighted(0.2, 0_u32..8);
    (
        9_u32..60,
        1_u32..12,
        0_u32..1_500,
        slow,
        silence,
        fast,
        crash,
    )
        .prop_map(|(morning, cost, over, slow, silence, fast, crash)| Day {
            morning,
            cost,
            over,
            slow,
            silence,
            fast,
            crash,
        })
}

/// Days with a burst of requests just when leases have ended.
fn tight_days() -> impl Strategy<Value = Day> {
    let slow = (0_u32..500, 500_u32..850);
    (9_u32..13, 8_u32..12, 0_u32..500, slow, 0_u32..850).prop_map(
        |(morning, cost, over, slow, late)| Day {
            morning,
            cost,
            over,
            slow,
            silence: slow.0 + 1_000 + late,
            fast: (0, 0),
            crash: None,
        },
    )
}

fn stories() -> impl Strategy<Value = Story> {
    (
        1_u32..=8,
        10_u32..=400,
        20_u32..1_200,
        200_u32..4_000,
        prop_oneof![
            1 => prop::collection::vec(days(), 1..4),
            1 => prop::collection::vec(tight_days(), 1..2),
        ],
    )
        .prop_map(|(instances, lease_ms, rate, burst, days)| Story {
            instances,
            lease_ms,
            rate,
            burst,
            days,
        })
}

impl Story {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.lease_ms.into())
    }

    fn parts(&self, thousandths: u32) -> Duration {
        self.lease() * thousandths / 1_000
    }

    /// Tokens per lease time, and the burst.
    fn quota(&self) -> (u64, u64) {
        let Day { morning, cost, .. } = self.days[0];
        let morning = u64::from(self.instances * (morning + 12 * cost));
        let of = |part: u32| (morning * u64::from(part) / 1_000).max(1);
        (of(self.rate), of(self.burst))
    }

    fn limiter(&self, wan: &Wan) -> Limiter {
        let (rate, burst) = self.quota();
        let policy = Policy::new("bound", Quota::new(rate, self.lease()).burst(burst));
        Limiter::builder(wan.clone(), policy)
            .consistency(Consistency::leased_for(self.lease()))
            .backend_timeout(Duration::from_secs(5))
            .failure_mode(FailureMode::Closed)
            .build()
            .unwrap()
    }

    /// Returns the time and cost of every admitted request.
    async fn play(&self) -> Vec<(Duration, u32)> {
        let (wan, passed) = (Wan::away(Duration::ZERO), Passed::now());
        let mut fleet: Vec<Instance> = (0..self.instances)
            .map(|_| (self.limiter(&wan), JoinSet::new()))
            .collect();
        let flood = u32::try_from(self.quota().1).unwrap() / self.instances + 150;
        for day in &self.days {
            wan.is_off(self.parts(day.slow.0), self.parts(day.slow.1));
            for number in 1..=day.morning {
                passed.ask(&mut fleet, if number < 8 { 1 } else { day.cost });
                sleep(self.parts(day.over) / day.morning).await;
            }
            if let Some(which) = day.crash {
                let which = usize::try_from(which % self.instances).unwrap();
                fleet[which] = (self.limiter(&wan), JoinSet::new());
            }
            sleep(self.parts(day.silence)).await;
            wan.is_off(self.parts(day.fast.0), self.parts(day.fast.1));
            for _ in 0..flood {
                passed.ask(&mut fleet, 1);
                tokio::task::yield_now().await;
            }
        }
        for (_, tasks) in &mut fleet {
            while let Some(done) = tasks.join_next().await {
                done.unwrap();
            }
        }
        passed.sorted()
    }
}

/// By how many tokens the worst interval exceeds the bound, in parts of a lease time's nanoseconds. The rate is in
/// tokens per lease time.
fn excess(passed: &[(Duration, u32)], (rate, burst): (u64, u64), lease: Duration) -> i128 {
    let nanos = |time: Duration| i128::try_from(time.as_nanos()).unwrap();
    let lease = nanos(lease);
    let bound = (i128::from(burst) + i128::from(rate)) * lease;
    let (mut worst, mut least, mut tokens) = (i128::MIN, i128::MAX, 0_i128);
    for &(time, cost) in passed {
        let earned = i128::from(rate) * nanos(time);
        least = least.min(tokens * lease - earned);
        tokens += i128::from(cost);
        worst = worst.max(tokens * lease - earned - least);
    }
    if passed.is_empty() { 0 } else { worst - bound }
}

/// A limiter and its requests.
type Instance = (Limiter, JoinSet<()>);

/// The admitted requests.
struct Passed {
    start: Instant,
    /// Times and costs of the requests.
    times: Arc<Mutex<Vec<(Duration, u32)>>>,
}

impl Passed {
    fn now() -> Self {
        Self {
            start: Instant::now(),
            times: Arc::default(),
        }
    }

    /// One request to each instance.
    fn ask(&self, fleet: &mut [Instance], cost: u32) {
        for (limiter, tasks) in fleet {
            let (limiter, start) = (limiter.clone(), self.start);
            let times = Arc::clone(&self.times);
            tasks.spawn(async move {
                if limiter.check_n("key", cost.into()).await.unwrap().allowed {
                    times.lock().unwrap().push((start.elapsed(), cost));
                }
            });
        }
    }

    fn sorted(&self) -> Vec<(Duration, u32)> {
        let mut times = self.times.lock().unwrap().clone();
        times.sort();
        times
    }
}

fn play<T>(story: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(story)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, max_shrink_iters: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_interval_admits_at_most_the_limit_of_the_interval_plus_a_lease_time(story in stories()) {
        let passed = play(story.play());
        let excess = excess(&passed, story.quota(), story.lease());
        prop_assert!(excess <= 0, "{excess} parts too many, {} requests", passed.len());
    }
}
