//! The algorithms, configured as a user does.

use std::time::Duration;

use serde::Serialize;
use tower::BoxError;
use tower_dist_ratelimit::backend::Memory;
use tower_dist_ratelimit::{Limiter, Policy, Quota};

use super::{LIMIT, WINDOW};

/// Tokens per request. The limiter reports the remaining tokens as an integer, so this gives a resolution of a
/// hundredth of a request.
pub(crate) const COST: u64 = 100;

/// Buckets of 15 seconds. With the weighted oldest bucket they are the article's five.
const SUB_WINDOWS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Algorithm {
    FixedWindow,
    TwoWindow,
    SubWindowsInterpolated,
    SubWindowsWhole,
    TokenBucket,
    /// A queue of one minute, which evens out the admitted requests.
    LeakyBucket,
    SlidingLog,
}

impl Algorithm {
    pub(crate) const ALL: [Self; 7] = [
        Self::FixedWindow,
        Self::TwoWindow,
        Self::SubWindowsInterpolated,
        Self::SubWindowsWhole,
        Self::TokenBucket,
        Self::LeakyBucket,
        Self::SlidingLog,
    ];

    /// The algorithms that the article plots.
    pub(crate) const IN_THE_ARTICLE: [Self; 3] = [
        Self::FixedWindow,
        Self::TwoWindow,
        Self::SubWindowsInterpolated,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::FixedWindow => "fixed-window",
            Self::TwoWindow => "two-window",
            Self::SubWindowsInterpolated => "sub-windows-interpolated",
            Self::SubWindowsWhole => "sub-windows-whole",
            Self::TokenBucket => "token-bucket",
            Self::LeakyBucket => "leaky-bucket",
            Self::SlidingLog => "sliding-log",
        }
    }

    pub(crate) fn limiter(self) -> Result<Limiter, BoxError> {
        let quota = Quota::new(LIMIT * COST, WINDOW);
        let policy = Policy::new(self.name(), quota).cost(COST);
        let policy = match self {
            Self::FixedWindow => policy.fixed_window(),
            Self::TwoWindow => policy.sliding_window(),
            Self::SubWindowsInterpolated => policy.sliding_window_buckets(SUB_WINDOWS),
            Self::SubWindowsWhole => policy.sliding_window_strict(SUB_WINDOWS),
            Self::TokenBucket => policy,
            Self::LeakyBucket => policy.leaky_queue(WINDOW),
            Self::SlidingLog => policy.sliding_window_log(),
        };
        Ok(Limiter::new(Memory::default(), policy)?)
    }

    /// Interval at which the count drops. An adversary sends its requests just before.
    pub(crate) fn turn(self) -> Duration {
        match self {
            Self::SubWindowsInterpolated | Self::SubWindowsWhole => WINDOW / SUB_WINDOWS,
            _ => WINDOW,
        }
    }
}
