//! One fleet with one mode at one load.

use std::time::Duration;

use serde::Serialize;
use tower::BoxError;

use super::fleet::{Fleet, Outcome};
use super::mode::Mode;
use crate::latencies::Latencies;
use crate::virtual_time;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) mode: &'static str,
    pub(crate) instances: u32,
    /// Requests per second, as a multiple of the bucket's rate.
    pub(crate) load: f64,
    /// Lease time, or the interval of eventual consistency; null for exact decisions.
    pub(crate) lease_ms: Option<u64>,
    /// Admitted requests, as a multiple of the requests that one bucket admits in the time.
    pub(crate) admitted_over_limit: f64,
    /// Upper bound of `admitted_over_limit`; null for eventual consistency, which has no bound.
    pub(crate) bound_over_limit: Option<f64>,
    /// Requests admitted in the worst second, as a multiple of the requests that one bucket admits in a second.
    pub(crate) worst_second_over_limit: f64,
    /// Round trips to the backend, for decisions and for leases, per request.
    pub(crate) round_trips_per_decision: f64,
    pub(crate) round_trips_per_second: f64,
    /// Admitted requests, as a share of all requests.
    pub(crate) admitted_ratio: f64,
    /// Latency of the decisions.
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

impl Row {
    pub(crate) fn run(fleet: Fleet, mode: Mode, load: f64, seed: u64) -> Result<Self, BoxError> {
        let outcome = virtual_time::block_on(fleet.run(mode, load, seed))??;
        Ok(Self::new(fleet, mode, load, &outcome))
    }

    fn new(fleet: Fleet, mode: Mode, load: f64, outcome: &Outcome) -> Self {
        let time = fleet.time();
        let limit = |time: Duration| {
            f64::from(fleet.burst()) + f64::from(fleet.rate()) * time.as_secs_f64()
        };
        let lease = Duration::from_millis(mode.ms());
        let mut admitted: Vec<Duration> = outcome
            .decisions
            .iter()
            .filter_map(|decided| decided.admitted)
            .collect();
        admitted.sort_unstable();
        let latencies = outcome.decisions.iter().map(|decided| decided.latency);
        let latencies = Latencies::new(latencies.map(|time| time.as_secs_f64() * 1e3).collect());
        let decisions = outcome.decisions.len() as f64;
        let round_trips = f64::from(outcome.round_trips);
        let second = Duration::from_secs(1);
        Self {
            mode: mode.name(),
            instances: fleet.instances,
            load,
            lease_ms: (mode != Mode::Exact).then_some(mode.ms()),
            admitted_over_limit: admitted.len() as f64 / limit(time),
            bound_over_limit: match mode {
                Mode::Async(_) => None,
                Mode::Exact | Mode::Lease(_) => Some(limit(time + lease) / limit(time)),
            },
            worst_second_over_limit: most_within(second, &admitted) as f64 / limit(second),
            round_trips_per_decision: round_trips / decisions,
            round_trips_per_second: round_trips / time.as_secs_f64(),
            admitted_ratio: admitted.len() as f64 / decisions,
            p50_ms: latencies.quantile(0.5),
            p99_ms: latencies.quantile(0.99),
        }
    }
}

/// Returns the largest number of `times`, which are sorted, in any interval of this length.
fn most_within(interval: Duration, times: &[Duration]) -> usize {
    let (mut first, mut most) = (0, 0);
    for (number, time) in times.iter().enumerate() {
        while times[first] + interval < *time {
            first += 1;
        }
        most = most.max(number + 1 - first);
    }
    most
}
