//! One algorithm with one kind of traffic.

use std::time::Duration;

use serde::Serialize;
use tower::BoxError;

use super::algorithm::Algorithm;
use super::limited::Limited;
use super::traffic::Traffic;
use super::{LIMIT, WINDOW};
use crate::virtual_time;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) algorithm: Algorithm,
    pub(crate) traffic: &'static str,
    /// Requests, as a multiple of the limit over the time.
    pub(crate) load: f64,
    /// Most requests admitted in any window, as a multiple of the limit.
    pub(crate) worst_window_over_limit: f64,
    /// Admitted requests, as a share of all requests.
    pub(crate) admitted_ratio: f64,
    /// The algorithm's count minus the true count just before each decision, in requests.
    pub(crate) mean_count_error: f64,
    pub(crate) mean_abs_error: f64,
    /// Requests rejected below the limit, as a share of all requests.
    pub(crate) wrongly_refused: f64,
    /// Requests admitted above the limit, as a share of all requests.
    pub(crate) wrongly_admitted: f64,
}

/// Sums over the requests.
#[derive(Debug, Default)]
struct Tally {
    requests: u32,
    error: f64,
    abs_error: f64,
    wrongly_refused: u32,
    wrongly_admitted: u32,
}

/// An adversary attacks, and then waits until the algorithm's state is empty.
const ATTACK: Duration = Duration::from_secs(150);
const CYCLE: Duration = Duration::from_secs(300);

/// Time between the first requests of an adversary and the end of a window.
const BEFORE: Duration = Duration::from_millis(1);

impl Row {
    pub(crate) fn run(
        algorithm: Algorithm,
        traffic: Traffic,
        time: Duration,
        seed: u64,
    ) -> Result<Self, BoxError> {
        virtual_time::block_on(async {
            let mut limited = Limited::start(algorithm).await?;
            let mut tally = Tally::default();
            match traffic.arrivals(time, seed) {
                Some(arrivals) => {
                    for at in arrivals {
                        limited.until(at).await;
                        tally.request(&mut limited).await?;
                    }
                }
                None => attacks(algorithm, &mut limited, &mut tally, time).await?,
            }
            Ok(tally.row(algorithm, traffic, time, &limited))
        })?
    }
}

/// Returns the times of the requests that an adversary gets admitted.
pub(crate) fn adversary(algorithm: Algorithm, time: Duration) -> Result<Vec<Duration>, BoxError> {
    virtual_time::block_on(async {
        let mut limited = Limited::start(algorithm).await?;
        attacks(algorithm, &mut limited, &mut Tally::default(), time).await?;
        Ok(limited.admitted().to_vec())
    })?
}

/// Attacks in cycles until `time`.
async fn attacks(
    algorithm: Algorithm,
    limited: &mut Limited,
    tally: &mut Tally,
    time: Duration,
) -> Result<(), BoxError> {
    let mut start = Duration::ZERO;
    while start < time {
        attack(algorithm, limited, tally, start).await?;
        start += CYCLE;
    }
    Ok(())
}

/// Sends requests until one is rejected, just before the count drops, and then each request as early as it can be
/// admitted.
async fn attack(
    algorithm: Algorithm,
    limited: &mut Limited,
    tally: &mut Tally,
    start: Duration,
) -> Result<(), BoxError> {
    limited.until(start + algorithm.turn() - BEFORE).await;
    while limited.now() < start + ATTACK {
        let refused = tally.request(limited).await?;
        limited.until(limited.now() + refused).await;
    }
    Ok(())
}

impl Tally {
    /// Sends one request and returns its `retry_after`, or zero.
    async fn request(&mut self, limited: &mut Limited) -> Result<Duration, BoxError> {
        let passed = limited.passed_until(limited.now());
        let error = limited.believed().await? - passed as f64;
        let decision = limited.request().await?;
        self.requests += 1;
        self.error += error;
        self.abs_error += error.abs();
        self.wrongly_refused += u32::from(!decision.allowed && passed < LIMIT);
        self.wrongly_admitted += u32::from(decision.allowed && limited.is_over());
        Ok(decision.retry_after.unwrap_or_default())
    }

    fn row(
        &self,
        algorithm: Algorithm,
        traffic: Traffic,
        time: Duration,
        limited: &Limited,
    ) -> Row {
        let of_all = |sum: f64| sum / f64::from(self.requests);
        let allowed = LIMIT as f64 * time.as_secs_f64() / WINDOW.as_secs_f64();
        Row {
            algorithm,
            traffic: traffic.name(),
            load: match traffic {
                Traffic::Poisson(load) => load,
                _ => f64::from(self.requests) / allowed,
            },
            worst_window_over_limit: limited.worst_window() as f64 / LIMIT as f64,
            admitted_ratio: of_all(limited.admitted().len() as f64),
            mean_count_error: of_all(self.error),
            mean_abs_error: of_all(self.abs_error),
            wrongly_refused: of_all(self.wrongly_refused.into()),
            wrongly_admitted: of_all(self.wrongly_admitted.into()),
        }
    }
}
