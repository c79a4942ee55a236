//! Arrival times of the requests.

use std::time::Duration;

use super::{LIMIT, WINDOW};
use crate::{arrivals, seeds};

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Traffic {
    /// Random requests, at this multiple of the limit.
    Poisson(f64),
    /// Bursts of the size of the limit.
    Bursty,
    /// The algorithm's own worst case.
    Adversarial,
}

/// Time between two bursts.
const BETWEEN_BURSTS: Duration = Duration::from_secs(37);

impl Traffic {
    pub(crate) const ALL: [Self; 5] = [
        Self::Poisson(0.8),
        Self::Poisson(1.5),
        Self::Poisson(3.0),
        Self::Bursty,
        Self::Adversarial,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Poisson(_) => "poisson",
            Self::Bursty => "bursty",
            Self::Adversarial => "adversarial",
        }
    }

    /// Returns arrival times, which are the same for all algorithms. `None` for an adversary, which reacts to the
    /// decisions.
    pub(crate) fn arrivals(self, time: Duration, seed: u64) -> Option<Vec<Duration>> {
        match self {
            Self::Poisson(load) => {
                let random = seeds::generator(seed, [load.to_bits(), 0, 0]);
                let per_second = load * LIMIT as f64 / WINDOW.as_secs_f64();
                Some(arrivals::poisson(per_second, time, random))
            }
            Self::Bursty => {
                let bursts = (0..).map(|burst| BETWEEN_BURSTS * burst);
                let bursts = bursts.take_while(|at| *at < time);
                let all = bursts.flat_map(|at| (0..LIMIT).map(move |_| at));
                Some(all.collect())
            }
            Self::Adversarial => None,
        }
    }
}
