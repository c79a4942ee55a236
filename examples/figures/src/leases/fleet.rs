//! Instances and their requests.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower::BoxError;
use tower_dist_ratelimit::{Limiter, Policy, Quota};

use super::mode::Mode;
use super::store::Store;
use crate::{arrivals, seeds};

/// Instances of a service that share one bucket.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Fleet {
    pub(crate) instances: u32,
    /// Round-trip time to the backend from each region, in milliseconds. Instances are spread evenly over the regions.
    pub(crate) round_trips_ms: &'static [u64],
    /// Duration of a run.
    pub(crate) seconds: u32,
}

/// The bucket's rate and size grow with the fleet.
const RATE_PER_INSTANCE: u32 = 50;
const BURST_PER_INSTANCE: u32 = 5;

/// Longer than the longest round trip.
const BACKEND_TIMEOUT: Duration = Duration::from_secs(1);

/// One decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decided {
    /// Time from the request to the decision.
    pub(crate) latency: Duration,
    /// When the request was admitted, since the start.
    pub(crate) admitted: Option<Duration>,
}

/// Results of a run.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) decisions: Vec<Decided>,
    pub(crate) round_trips: u32,
}

impl Fleet {
    /// Tokens per second.
    pub(crate) fn rate(self) -> u32 {
        RATE_PER_INSTANCE * self.instances
    }

    /// Tokens of a full bucket.
    pub(crate) fn burst(self) -> u32 {
        BURST_PER_INSTANCE * self.instances
    }

    pub(crate) fn time(self) -> Duration {
        Duration::from_secs(self.seconds.into())
    }

    /// Number of requests in a run, approximately.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "an estimate, for a progress bar"
    )]
    pub(crate) fn work(self, load: f64) -> u64 {
        (load * f64::from(self.rate())) as u64 * u64::from(self.seconds)
    }

    /// Sends random requests from all instances, on the paused clock of the current runtime.
    pub(crate) async fn run(self, mode: Mode, load: f64, seed: u64) -> Result<Outcome, BoxError> {
        let (store, start) = (Store::default(), Instant::now());
        let mut fleet = JoinSet::new();
        let regions = self.round_trips_ms.iter().cycle();
        for (instance, region_ms) in (0..self.instances).zip(regions) {
            let quota = Quota::per_second(self.rate().into()).burst(self.burst().into());
            let store = store.at(Duration::from_millis(*region_ms));
            let limiter = Limiter::builder(store, Policy::new("fleet", quota))
                .backend_timeout(BACKEND_TIMEOUT)
                .consistency(mode.consistency())
                .build()?;
            let random = seeds::generator(seed, [load.to_bits(), instance.into(), 0]);
            let per_second = load * f64::from(RATE_PER_INSTANCE);
            let arrivals = arrivals::poisson(per_second, self.time(), random);
            fleet.spawn(send(limiter, start, arrivals));
        }
        let decisions: Vec<_> = fleet.join_all().await.into_iter().flatten().collect();
        Ok(Outcome {
            decisions,
            round_trips: store.round_trips(),
        })
    }
}

/// Sends the requests of one instance.
async fn send(limiter: Limiter, start: Instant, arrivals: Vec<Duration>) -> Vec<Decided> {
    let mut requests = JoinSet::new();
    let mut decisions = Vec::with_capacity(arrivals.len());
    for at in arrivals {
        sleep_until(start + at).await;
        let limiter = limiter.clone();
        requests.spawn(async move {
            let sent = Instant::now();
            let decision = limiter.check("key").await;
            let admitted = decision.is_ok_and(|decision| decision.allowed);
            Decided {
                latency: sent.elapsed(),
                admitted: admitted.then(|| start.elapsed()),
            }
        });
        while let Some(Ok(decided)) = requests.try_join_next() {
            decisions.push(decided);
        }
    }
    decisions.extend(requests.join_all().await);
    decisions
}
