//! Results of the article's own simulator.

use super::strategy::Strategy;

/// Means of the simulator that the authors published (aws-arch-backoff-simulator). The article's graphs state no
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Published {
    pub(crate) calls: f64,
    pub(crate) completion_ms: f64,
}

impl Published {
    pub(crate) fn of(clients: u32, strategy: Strategy) -> Option<Self> {
        use Strategy::{DecorrelatedJitter, EqualJitter, Exponential, FullJitter, None as NoWait};
        let (calls, completion_ms) = match (clients, strategy) {
            (50, NoWait) => (691.0, 1142.0),
            (50, Exponential) => (623.0, 36317.0),
            (50, FullJitter) => (332.0, 2868.0),
            (50, EqualJitter) => (347.0, 4236.0),
            (50, DecorrelatedJitter) => (375.0, 2199.0),
            (100, NoWait) => (2418.0, 2030.0),
            (100, Exponential) => (1857.0, 63178.0),
            (100, FullJitter) => (796.0, 4948.0),
            (100, EqualJitter) => (812.0, 6614.0),
            (100, DecorrelatedJitter) => (1003.0, 4596.0),
            _ => return None,
        };
        Some(Self {
            calls,
            completion_ms,
        })
    }
}
