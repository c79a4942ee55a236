//! One mode at one load.

use serde::Serialize;
use tower::BoxError;

use super::mode::Mode;
use super::scenario::{Scenario, Traffic};

/// Goodput that counts as recovered, as a share of the arrivals.
pub(crate) const RECOVERED: f64 = 0.93;
/// Seconds for which the goodput must stay recovered, and over which rates are averaged.
const SECONDS: usize = 5;
/// Recovery later than this many seconds after the outage does not count.
const LATEST: usize = 90;
/// When the rates are taken, in seconds after the outage.
const RATES_AT: usize = 60;

/// One row of the results; the names of the fields are the keys of the JSON.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Row {
    /// Arrivals, as a share of the server's capacity.
    pub(crate) load: f64,
    pub(crate) mode: Mode,
    /// Seconds from the end of the outage to the recovery; null if there was none.
    pub(crate) recovery_s: Option<usize>,
    /// Successful calls per second, from 60 s to 65 s after the outage.
    pub(crate) goodput_60_s: f64,
    /// Attempts per second, rejected ones included, in the same time.
    pub(crate) offered_60_s: f64,
    #[serde(skip)]
    pub(crate) traffic: Traffic,
}

impl Row {
    pub(crate) fn run(
        scenario: Scenario,
        load: f64,
        mode: Mode,
        seed: u64,
    ) -> Result<Self, BoxError> {
        let traffic = scenario.run(load, mode, seed)?;
        let back = scenario.outage_end as usize;
        Ok(Self {
            load,
            mode,
            recovery_s: recovery(scenario, &traffic),
            goodput_60_s: rate(&traffic.goodput[back..]),
            offered_60_s: rate(&traffic.offered[back..]),
            traffic,
        })
    }
}

/// The first second after the outage from which on the goodput stays at 93 % of the arrivals for five seconds.
pub(crate) fn recovery(scenario: Scenario, traffic: &Traffic) -> Option<usize> {
    let seconds = traffic.arrivals.iter().zip(&traffic.goodput);
    let good: Vec<bool> = seconds
        .skip(scenario.outage_end as usize)
        .map(|(arrivals, goodput)| *goodput >= RECOVERED * arrivals)
        .collect();
    let mut spans = good.windows(SECONDS).take(LATEST + 1);
    spans.position(|span| span.iter().all(|good| *good))
}

fn rate(per_second: &[f64]) -> f64 {
    let span = &per_second[RATES_AT..RATES_AT + SECONDS];
    span.iter().sum::<f64>() / SECONDS as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The recovery with 100 arrivals per second and this goodput after the outage.
    fn recovery_with(goodput: &[f64]) -> Option<usize> {
        let scenario = Scenario::PUBLISHED;
        let mut all = vec![100.0; scenario.outage_end as usize];
        all.extend(goodput);
        let traffic = Traffic {
            arrivals: vec![100.0; all.len()],
            offered: Vec::new(),
            goodput: all,
        };
        recovery(scenario, &traffic)
    }

    #[test]
    fn recovery_is_the_start_of_the_first_five_good_seconds() {
        let mut goodput = [0.0; 95];
        assert_eq!(recovery_with(&goodput), None);
        goodput[3..7].fill(93.0);
        assert_eq!(recovery_with(&goodput), None);
        goodput[90..].fill(93.0);
        assert_eq!(recovery_with(&goodput), Some(90));
        goodput[7] = 92.9;
        goodput[20..25].fill(120.0);
        assert_eq!(recovery_with(&goodput), Some(20));
        goodput[7] = 93.0;
        assert_eq!(recovery_with(&goodput), Some(3));
    }

    #[test]
    fn recovery_after_90_seconds_does_not_count() {
        let mut goodput = [0.0; 100];
        goodput[91..].fill(100.0);
        assert_eq!(recovery_with(&goodput), None);
    }

    #[test]
    fn rates_are_means_from_60_s_to_65_s() {
        let per_second: Vec<f64> = (0..95).map(f64::from).collect();
        assert!((rate(&per_second) - 62.0).abs() < 1e-9);
    }
}
