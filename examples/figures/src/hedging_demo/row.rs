use serde::Serialize;

use super::mode::Mode;
use crate::latencies::Latencies;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) mode: Mode,
    pub(crate) p50_ms: f64,
    pub(crate) p90_ms: f64,
    pub(crate) p95_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    pub(crate) max_ms: f64,
    /// Attempts beyond the first, as a share of the requests.
    pub(crate) extra_load: f64,
    pub(crate) requests: u32,
    #[serde(skip)]
    pub(crate) latencies: Latencies,
}

impl Row {
    /// `millis` are the latencies of the requests.
    pub(crate) fn new(mode: Mode, millis: Vec<f64>, requests: u32, attempts: u32) -> Self {
        let latencies = Latencies::new(millis);
        let at = |quantile| latencies.quantile(quantile);
        Self {
            mode,
            p50_ms: at(0.5),
            p90_ms: at(0.9),
            p95_ms: at(0.95),
            p99_ms: at(0.99),
            p999_ms: at(0.999),
            max_ms: at(1.0),
            extra_load: f64::from(attempts) / f64::from(requests) - 1.0,
            requests,
            latencies,
        }
    }
}
