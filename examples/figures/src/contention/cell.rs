//! Means over the trials of one setting.

use serde::Serialize;

use super::strategy::Strategy;
use super::trial::Trial;

/// Resolution of the calls over time, in milliseconds.
pub(crate) const BIN: f64 = 20.0;
/// Calls are counted up to 6000 ms.
const BINS: usize = 300;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Cell {
    pub(crate) clients: u32,
    pub(crate) strategy: Strategy,
    /// Writes that reached the server, mean per trial.
    pub(crate) calls: f64,
    /// Time of the last event, mean per trial.
    pub(crate) completion_ms: f64,
    pub(crate) trials: usize,
    /// Calls in each bin, mean per trial.
    #[serde(skip)]
    pub(crate) calls_over_time: Vec<f64>,
}

impl Cell {
    /// Averages one or more trials.
    pub(crate) fn new(clients: u32, strategy: Strategy, trials: &[Trial]) -> Self {
        let mean = |sum: f64| sum / trials.len() as f64;
        let mut calls_over_time = vec![0.0; BINS];
        for time in trials.iter().flat_map(|trial| &trial.writes) {
            if let Some(calls) = calls_over_time.get_mut(bin(*time)) {
                *calls += mean(1.0);
            }
        }
        Self {
            clients,
            strategy,
            calls: mean(trials.iter().map(|trial| trial.writes.len() as f64).sum()),
            completion_ms: mean(trials.iter().map(|trial| trial.completion).sum()),
            trials: trials.len(),
            calls_over_time,
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "times are not negative, and the cast saturates"
)]
fn bin(time: f64) -> usize {
    (time / BIN) as usize
}
