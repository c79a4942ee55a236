//! Counts over time.

use std::time::Duration;

use tower::BoxError;

use super::algorithm::Algorithm;
use super::limited::Limited;
use super::row;
use super::traffic::Traffic;
use crate::virtual_time;

/// The count of one algorithm and the true count, with two kinds of traffic.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) algorithm: Algorithm,
    /// With random requests.
    pub(crate) random: Counts,
    /// With the requests that an adversary gets admitted.
    pub(crate) adversarial: Counts,
}

#[derive(Debug)]
pub(crate) struct Counts {
    /// Requests admitted in the last 60 s, over the time in seconds.
    pub(crate) passed: Vec<(f64, f64)>,
    /// The algorithm's count, over the time in seconds.
    pub(crate) believed: Vec<(f64, f64)>,
}

/// Time between two points. The highest count of an adversary lasts longer.
const STEP: Duration = Duration::from_millis(500);

/// Near the limit, where an error matters. Below it, so that few requests are rejected and all algorithms count the
/// same ones.
const RANDOM: Traffic = Traffic::Poisson(0.8);

impl Trace {
    pub(crate) fn run(algorithm: Algorithm, time: Duration, seed: u64) -> Result<Self, BoxError> {
        let random = RANDOM.arrivals(time, seed).unwrap_or_default();
        Ok(Self {
            algorithm,
            random: Counts::run(algorithm, &random, time)?,
            adversarial: Counts::run(algorithm, &row::adversary(algorithm, time)?, time)?,
        })
    }
}

impl Counts {
    fn run(algorithm: Algorithm, arrivals: &[Duration], time: Duration) -> Result<Self, BoxError> {
        let mut arrivals = arrivals.iter().copied().peekable();
        virtual_time::block_on(async {
            let mut limited = Limited::start(algorithm).await?;
            let mut counts = Self {
                passed: Vec::new(),
                believed: Vec::new(),
            };
            let mut at = Duration::ZERO;
            while at <= time {
                while let Some(arrival) = arrivals.next_if(|arrival| *arrival <= at) {
                    limited.until(arrival).await;
                    limited.request().await?;
                }
                limited.until(at).await;
                let passed = limited.passed_until(at) as f64;
                counts.passed.push((at.as_secs_f64(), passed));
                let believed = limited.believed().await?;
                counts.believed.push((at.as_secs_f64(), believed));
                at += STEP;
            }
            Ok(counts)
        })?
    }
}
