use std::{fmt, time::Duration};

use crate::{
    BuildError, Quota,
    algorithm::{MAX_LOG, MAX_SUB_WINDOWS},
    build_error::ensure,
    quota::HORIZON,
};

/// The algorithm of a [`Policy`](crate::Policy). `Policy` has a setter for each variant except the default.
///
/// ```
/// use tower_dist_ratelimit::{Algorithm, Policy, Quota};
///
/// let policy = Policy::new("login", Quota::per_minute(5));
/// assert_eq!(policy.algorithm(), Algorithm::TokenBucket);
/// assert_eq!(policy.sliding_window_log().algorithm(), Algorithm::SlidingWindowLog);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Algorithm {
    /// A bucket that gains tokens evenly. The default.
    #[default]
    TokenBucket,
    /// A bucket that fills with each admitted request and leaks evenly.
    LeakyBucket,
    /// A leaky bucket whose requests wait for their turn.
    LeakyQueue {
        /// Maximum wait, above zero and at most 100 years. Some backends allow less.
        max_wait: Duration,
    },
    /// A counter per window. The windows of a key start at fixed times.
    FixedWindow {
        /// Whether the windows of different keys usually start at different times.
        staggered: bool,
    },
    /// A counter per window. A window starts when tokens are charged to a key that has no open window.
    FixedWindowFromFirstRequest,
    /// The counters of the current and the previous window. The previous window counts in proportion to its overlap
    /// with a window that ends now.
    SlidingWindow,
    /// One counter for each of `count` + 1 successive time buckets. The length of a window is `count` buckets. The
    /// oldest bucket counts in proportion to its part inside a window that ends now.
    SlidingWindowBuckets {
        /// Number of buckets in a window, from 2 to 100.
        count: u32,
    },
    /// One counter for each of `count` + 1 successive time buckets. The length of a window is `count` buckets. The
    /// oldest bucket counts in full.
    SlidingWindowStrict {
        /// Number of buckets in a window, from 2 to 100.
        count: u32,
    },
    /// A log of the times and costs of admitted requests.
    SlidingWindowLog,
}

/// The name of the algorithm, with its setting.
///
/// ```
/// use tower_dist_ratelimit::Algorithm;
///
/// assert_eq!(Algorithm::TokenBucket.to_string(), "token bucket");
/// assert_eq!(Algorithm::SlidingWindowBuckets { count: 4 }.to_string(), "sliding window of 4 buckets");
/// ```
impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TokenBucket => f.write_str("token bucket"),
            Self::LeakyBucket => f.write_str("leaky bucket"),
            Self::LeakyQueue { max_wait } => write!(f, "leaky queue of {max_wait:?}"),
            Self::FixedWindow { staggered: false } => f.write_str("fixed window"),
            Self::FixedWindow { staggered: true } => f.write_str("staggered fixed window"),
            Self::FixedWindowFromFirstRequest => f.write_str("fixed window from first request"),
            Self::SlidingWindow => f.write_str("sliding window"),
            Self::SlidingWindowBuckets { count } => write!(f, "sliding window of {count} buckets"),
            Self::SlidingWindowStrict { count } => {
                write!(f, "strict sliding window of {count} buckets")
            }
            Self::SlidingWindowLog => f.write_str("sliding window log"),
        }
    }
}

impl Algorithm {
    /// Returns whether the algorithm counts in windows or keeps a log. With the other algorithms, tokens return evenly.
    pub(crate) fn has_windows(self) -> bool {
        !self.is_bucket() && !matches!(self, Self::LeakyQueue { .. })
    }

    /// Returns whether the algorithm is a token bucket or a leaky bucket.
    pub(crate) fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    /// Adapts a key's dynamic quota `quota` to the algorithm, under a policy whose quota is `own`. Window and log
    /// algorithms keep the window of `own` and have no burst. The limit of a log is at most [`MAX_LOG`].
    pub(crate) fn kept(self, quota: Quota, own: Quota) -> Quota {
        match self {
            Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue { .. } => quota,
            Self::SlidingWindowLog => Quota::new(quota.limit().min(MAX_LOG), own.window()),
            _ => Quota::new(quota.limit(), own.window()),
        }
    }

    /// Checks the bounds that all backends share.
    pub(crate) fn check(self, quota: Quota) -> Result<(), BuildError> {
        let (window, limit, burst) = (quota.window(), quota.limit(), quota.burst_size());
        match self {
            Self::TokenBucket | Self::LeakyBucket => return Ok(()),
            Self::LeakyQueue { max_wait } => {
                let is_valid = !max_wait.is_zero() && max_wait <= HORIZON;
                ensure!(is_valid, "max_wait" is max_wait, "above 0 and at most 100 years");
            }
            Self::SlidingWindowBuckets { count } | Self::SlidingWindowStrict { count } => {
                let field = match self {
                    Self::SlidingWindowBuckets { .. } => "sliding_window_buckets",
                    _ => "sliding_window_strict",
                };
                let is_valid = (2..=MAX_SUB_WINDOWS).contains(&count);
                ensure!(is_valid, field is count, "2 to {MAX_SUB_WINDOWS}");
                let is_valid = window >= Duration::from_nanos(count.into());
                ensure!(is_valid, "window" is window, "at least {count}ns, one for each sub-window");
            }
            Self::SlidingWindowLog => {
                let is_valid = limit <= MAX_LOG;
                ensure!(is_valid, "limit" is limit, "at most {MAX_LOG} with a sliding log");
            }
            _ => {}
        }
        let reason = "only token and leaky buckets have a burst";
        ensure!(burst == limit, "burst" is burst, "the limit, {limit}: {reason}");
        Ok(())
    }
}
