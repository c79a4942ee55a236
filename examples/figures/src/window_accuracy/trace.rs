//! How the counts go over time.

use std::time::Duration;

use tower::BoxError;

use super::algorithm::Algorithm;
use super::limited::Limited;
use super::traffic::Traffic;
use crate::virtual_time;

/// What one algorithm believed to be in the window, and what was, over the same traffic.
#[derive(Debug)]
pub(crate) struct Trace {
    pub(crate) algorithm: Algorithm,
    /// At so many seconds.
    pub(crate) passed: Vec<(f64, f64)>,
    pub(crate) believed: Vec<(f64, f64)>,
}

/// Between two points.
const STEP: Duration = Duration::from_secs(1);

/// Near the limit, where an error matters, and below it, so that few are refused and all see about the same requests.
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
