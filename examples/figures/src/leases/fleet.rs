//! Instances and their requests.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};
use tower::BoxError;
use tower_dist_ratelimit::{Limiter, Policy, Quota};

use super::mode::Mode;
use super::store::Store;
use super::{BURST, INSTANCES, RATE};
use crate::{arrivals, seeds};

/// What came of a fleet's requests.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) decisions: u32,
    /// When requests passed, in order, since the start.
    pub(crate) passed: Vec<Duration>,
    pub(crate) trips: u32,
}

/// Lets instances ask for so long, on the paused clock of the current runtime: each at random, all together at this
/// multiple of the limit.
pub(crate) async fn run(
    mode: Mode,
    load: f64,
    time: Duration,
    seed: u64,
) -> Result<Outcome, BoxError> {
    let (store, start) = (Store::default(), Instant::now());
    let passed: Arc<Mutex<Vec<Duration>>> = Arc::default();
    let mut fleet = JoinSet::new();
    for number in 0..INSTANCES {
        let policy = Policy::new("fleet", Quota::per_second(RATE.into()).burst(BURST.into()));
        let limiter = Limiter::builder(store.clone(), policy).consistency(mode.sharing());
        let limiter = limiter.build()?;
        let per_second = load * f64::from(RATE) / f64::from(INSTANCES);
        let random = seeds::generator(seed, [load.to_bits(), number.into(), 0]);
        let arrivals = arrivals::poisson(per_second, time, random);
        let passed = Arc::clone(&passed);
        fleet.spawn(async move {
            let mut requests = JoinSet::new();
            for at in &arrivals {
                sleep_until(start + *at).await;
                let (limiter, passed) = (limiter.clone(), Arc::clone(&passed));
                requests.spawn(async move {
                    if limiter
                        .check("key")
                        .await
                        .is_ok_and(|decision| decision.allowed)
                    {
                        let mut passed = passed.lock().unwrap_or_else(PoisonError::into_inner);
                        passed.push(start.elapsed());
                    }
                });
                while requests.try_join_next().is_some() {}
            }
            requests.join_all().await;
            arrivals.len()
        });
    }
    let decisions: usize = fleet.join_all().await.into_iter().sum();
    let mut passed = std::mem::take(&mut *passed.lock().unwrap_or_else(PoisonError::into_inner));
    passed.sort_unstable();
    Ok(Outcome {
        decisions: u32::try_from(decisions)?,
        passed,
        trips: store.trips(),
    })
}
