//! Known bounds of the worst window.

use super::algorithm::Algorithm;

/// Most requests in any window, as a multiple of the limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Published {
    About(f64),
    AtMost(f64),
}

impl Published {
    /// The article states that a fixed window admits twice the limit. The other bounds follow from the algorithms. Two
    /// windows admit one request less against an adversary, and stay close to the limit on real traffic. Whole
    /// sub-windows and the log never exceed the limit. A token bucket adds its burst.
    pub(crate) fn of(algorithm: Algorithm, traffic: &str) -> Option<Self> {
        let adversarial = traffic == "adversarial";
        let poisson = traffic == "poisson";
        match algorithm {
            Algorithm::FixedWindow if adversarial => Some(Self::About(2.0)),
            Algorithm::TwoWindow if adversarial => Some(Self::About(1.99)),
            Algorithm::TwoWindow if poisson => Some(Self::AtMost(1.15)),
            Algorithm::SubWindowsWhole | Algorithm::SlidingLog => Some(Self::AtMost(1.0)),
            Algorithm::TokenBucket => Some(Self::AtMost(2.0)),
            _ => None,
        }
    }

    #[cfg(test)]
    pub(crate) fn holds(self, ours: f64) -> bool {
        match self {
            Self::About(value) => (ours - value).abs() < 0.005,
            Self::AtMost(value) => ours < value + 0.005,
        }
    }
}
