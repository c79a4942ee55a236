//! One way to share the bucket under one load.

use std::time::Duration;

use serde::Serialize;
use tower::BoxError;

use super::fleet::{self, Outcome};
use super::mode::Mode;
use super::{BURST, RATE};
use crate::virtual_time;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) mode: &'static str,
    /// Requests that come, over what the bucket gains.
    pub(crate) load: f64,
    /// The lease time, or the interval of asynchronous sharing; null for exact decisions.
    pub(crate) lease_ms: Option<u64>,
    /// Of what a single bucket lets through in the time.
    pub(crate) admitted_over_limit: f64,
    /// The most that can be; null where nothing is promised.
    pub(crate) bound_over_limit: Option<f64>,
    /// The most requests that passed in any second, over what a single bucket lets through in one.
    pub(crate) worst_second_over_limit: f64,
    /// To the store, whatever for, per request.
    pub(crate) round_trips_per_decision: f64,
    /// Of the requests.
    pub(crate) admitted_ratio: f64,
}

impl Row {
    pub(crate) fn run(mode: Mode, load: f64, time: Duration, seed: u64) -> Result<Self, BoxError> {
        let outcome = virtual_time::block_on(fleet::run(mode, load, time, seed))??;
        Ok(Self::new(mode, load, time, &outcome))
    }

    fn new(mode: Mode, load: f64, time: Duration, outcome: &Outcome) -> Self {
        let limit = |time: Duration| f64::from(BURST) + f64::from(RATE) * time.as_secs_f64();
        let lease = Duration::from_millis(mode.ms());
        let decisions = f64::from(outcome.decisions);
        let admitted = outcome.passed.len() as f64;
        let second = Duration::from_secs(1);
        Self {
            mode: mode.name(),
            load,
            lease_ms: (mode != Mode::Exact).then_some(mode.ms()),
            admitted_over_limit: admitted / limit(time),
            bound_over_limit: match mode {
                Mode::Async(_) => None,
                Mode::Exact | Mode::Lease(_) => Some(limit(time + lease) / limit(time)),
            },
            worst_second_over_limit: worst(&outcome.passed, second) as f64 / limit(second),
            round_trips_per_decision: f64::from(outcome.trips) / decisions,
            admitted_ratio: admitted / decisions,
        }
    }
}

/// The most of these times that lie within so long of each other.
fn worst(times: &[Duration], window: Duration) -> usize {
    let ends = times
        .iter()
        .enumerate()
        .map(|(number, &start)| times[number..].partition_point(|&time| time <= start + window));
    ends.max().unwrap_or(0)
}
