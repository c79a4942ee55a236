//! Counts over time.

use std::time::Duration;

use tower::BoxError;

use super::algorithm::Algorithm;
use super::limited::Limited;
use super::traffic::Traffic;
use crate::virtual_time;

/// The count of one algorithm and the true count, over the same traffic.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) algorithm: Algorithm,
    /// Requests admitted in the last 60 s, over the time in seconds.
    pub(crate) passed: Vec<(f64, f64)>,
    /// The algorithm's count, over the time in seconds.
    pub(crate) believed: Vec<(f64, f64)>,
}

/// Time between two points.
const STEP: Duration = Duration::from_secs(1);

/// Near the limit, where an error matters. Below it, so that few requests are rejected and all algorithms count the
/// same ones.
const TRAFFIC: Traffic = Traffic::Poisson(0.8);

impl Trace {
    pub(crate) fn run(algorithm: Algorithm, time: Duration, seed: u64) -> Result<Self, BoxError> {
        let mut arrivals = TRAFFIC
            .arrivals(time, seed)
            .unwrap_or_default()
            .into_iter()
            .peekable();
        virtual_time::block_on(async {
            let mut limited = Limited::start(algorithm).await?;
            let mut trace = Self {
                algorithm,
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
                trace.passed.push((at.as_secs_f64(), passed));
                let believed = limited.believed().await?;
                trace.believed.push((at.as_secs_f64(), believed));
                at += STEP;
            }
            Ok(trace)
        })?
    }
}
