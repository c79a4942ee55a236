//! How clients wait before they try again.

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

/// The article's, in milliseconds. Its simulator doubles a base of 5 before the first wait already,
/// except for decorrelated jitter.
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

    /// As in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Exponential => "exponential",
            Self::FullJitter => "full-jitter",
            Self::EqualJitter => "equal-jitter",
            Self::DecorrelatedJitter => "decorrelated-jitter",
        }
    }

    /// The backoff in virtual time.
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
