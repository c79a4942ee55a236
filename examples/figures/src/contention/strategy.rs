//! Delays of the clients between attempts.

use serde::Serialize;
use tower_jitter_retry::{Backoff, Jitter};

use crate::virtual_time::virtual_ms;

/// The article's strategies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Strategy {
    None,
    Exponential,
    FullJitter,
    EqualJitter,
    DecorrelatedJitter,
}

/// The article's values in milliseconds. Except for decorrelated jitter, its simulator doubles a base of 5 before the
/// first delay.
const BASE: f64 = 10.0;
const DECORRELATED_BASE: f64 = 5.0;
const CAP: f64 = 2000.0;

impl Strategy {
    pub(crate) const ALL: [Self; 5] = [
        Self::None,
        Self::Exponential,
        Self::FullJitter,
        Self::EqualJitter,
        Self::DecorrelatedJitter,
    ];

    /// Name in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::FullJitter => "full-jitter",
            Self::EqualJitter => "equal-jitter",
            Self::DecorrelatedJitter => "decorrelated-jitter",
        }
    }

    /// Returns the backoff in virtual time.
    pub(crate) fn backoff(self) -> Backoff {
        let (base, jitter) = match self {
            Self::None => return Backoff::none(),
            Self::Exponential => (BASE, Jitter::None),
            Self::FullJitter => (BASE, Jitter::Full),
            Self::EqualJitter => (BASE, Jitter::Equal),
            Self::DecorrelatedJitter => (DECORRELATED_BASE, Jitter::Decorrelated),
        };
        Backoff::exponential(virtual_ms(base), virtual_ms(CAP)).jitter(jitter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::virtual_time::figure_ms;

    #[test]
    fn delays_are_the_articles() {
        let waits = |strategy: Strategy| {
            let delays = strategy.backoff().seed(1).schedule().take(10);
            delays.map(figure_ms).collect::<Vec<f64>>()
        };
        assert_eq!(waits(Strategy::None), [0.0; 10]);
        let ceilings = [
            10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 640.0, 1280.0, 2000.0, 2000.0,
        ];
        assert_eq!(waits(Strategy::Exponential), ceilings);
        for (wait, ceiling) in waits(Strategy::FullJitter).into_iter().zip(ceilings) {
            assert!((0.0..=ceiling).contains(&wait));
        }
        for (wait, ceiling) in waits(Strategy::EqualJitter).into_iter().zip(ceilings) {
            assert!((ceiling / 2.0..=ceiling).contains(&wait));
        }
        let mut previous = 5.0;
        for wait in waits(Strategy::DecorrelatedJitter) {
            assert!((5.0..=2000.0_f64.min(3.0 * previous)).contains(&wait));
            previous = wait;
        }
    }
}
