use serde::Serialize;

use super::mode::Mode;
use super::trial::Trial;
use crate::latencies::Latencies;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) mode: Mode,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) p999_ms: f64,
    /// Hedges, as a share of all keys.
    pub(crate) extra_load: f64,
    pub(crate) queries: usize,
    #[serde(skip)]
    pub(crate) latencies: Latencies,
}

impl Row {
    /// Summarises the trials, which have at least one query.
    pub(crate) fn new(mode: Mode, trials: Vec<Trial>) -> Self {
        let sum = |count: fn(&Trial) -> u64| trials.iter().map(count).sum::<u64>() as f64;
        let extra_load = sum(|trial| trial.hedges) / sum(|trial| trial.keys);
        let latencies: Vec<f64> = trials
            .into_iter()
            .flat_map(|trial| trial.latencies)
            .collect();
        let queries = latencies.len();
        let latencies = Latencies::new(latencies);
        Self {
            mode,
            p50_ms: latencies.quantile(0.5),
            p99_ms: latencies.quantile(0.99),
            p999_ms: latencies.quantile(0.999),
            extra_load,
            queries,
            latencies,
        }
    }
}
