use std::{fmt, time::Duration};

use crate::{
    BuildError, Quota,
    algorithm::{MAX_LOG, MAX_SUB_WINDOWS},
    quota::HORIZON,
};

/// How a [`Policy`](crate::Policy) counts, as its setters say. For those who write a
/// [`Backend`](crate::backend::Backend).
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
    /// A bucket that gains tokens evenly: the default.
    #[default]
    TokenBucket,
    /// A bucket that fills with each request and leaks evenly.
    LeakyBucket,
    /// The same as a queue: requests wait for their turn.
    LeakyQueue {
        /// The longest wait.
        max_wait: Duration,
    },
    /// A counter per window.
    FixedWindow {
        /// Whether each key has windows that begin at a time of its own.
        staggered: bool,
    },
    /// A counter per window, which begins with a key's first request.
    FixedWindowFromFirstRequest,
    /// This window's counter and a share of the previous one's.
    SlidingWindow,
    /// Counters of shorter windows, and a share of the oldest.
    SlidingWindowBuckets {
        /// In a window.
        count: u32,
    },
    /// Counters of shorter windows, the oldest as a whole.
    SlidingWindowStrict {
        /// In a window.
        count: u32,
    },
    /// The time of every request.
    SlidingWindowLog,
}

/// The name that the algorithm has in the literature, with its setting.
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
    /// Whether what was taken counts until its time is over; else it comes back evenly.
    pub(crate) fn has_windows(self) -> bool {
        !matches!(
            self,
            Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue { .. }
        )
    }

    /// Whether tokens come back evenly, up to a burst.
    pub(crate) fn is_bucket(self) -> bool {
        matches!(self, Self::TokenBucket | Self::LeakyBucket)
    }

    /// What a request can cost at most, by name: all that a bucket holds, or what passes in a window or in a queue.
    pub(crate) fn largest(self) -> &'static str {
        if self.is_bucket() { "burst" } else { "limit" }
    }

    /// What holds of a key's quota where the policy has its own: windows keep their length, and a log its bound.
    pub(crate) fn kept(self, quota: Quota, own: Quota) -> Quota {
        match self {
            Self::TokenBucket | Self::LeakyBucket | Self::LeakyQueue { .. } => quota,
            Self::SlidingWindowLog => Quota::new(quota.limit().min(MAX_LOG), own.window()),
            _ => Quota::new(quota.limit(), own.window()),
        }
    }

    /// Checks what holds on every backend.
    pub(crate) fn check(self, quota: Quota) -> Result<(), BuildError> {
        match self {
            Self::TokenBucket | Self::LeakyBucket => return Ok(()),
            Self::LeakyQueue { max_wait } if max_wait.is_zero() || max_wait > HORIZON => {
                let value = format_args!("{max_wait:?}");
                return Err(BuildError::new(
                    "max_wait",
                    value,
                    "above 0 and at most 100 years",
                ));
            }
            Self::SlidingWindowBuckets { count } | Self::SlidingWindowStrict { count } => {
                if !(2..=MAX_SUB_WINDOWS).contains(&count) {
                    let field = match self {
                        Self::SlidingWindowBuckets { .. } => "sliding_window_buckets",
                        _ => "sliding_window_strict",
                    };
                    let bound = format_args!("2 to {MAX_SUB_WINDOWS}");
                    return Err(BuildError::new(field, count, bound));
                }
                if quota.window() < Duration::from_nanos(count.into()) {
                    let value = format_args!("{:?}", quota.window());
                    let bound = format_args!("at least {count}ns, one for each sub-window");
                    return Err(BuildError::new("window", value, bound));
                }
            }
            Self::SlidingWindowLog if quota.limit() > MAX_LOG => {
                let bound = format_args!("at most {MAX_LOG} with a sliding log");
                return Err(BuildError::new("limit", quota.limit(), bound));
            }
            _ => {}
        }
        // Silence would be misread: somebody has thought of a burst and would not get it.
        if quota.burst_size() != quota.limit() {
            let bound = format_args!(
                "the limit, {}: only token and leaky buckets have a burst",
                quota.limit()
            );
            return Err(BuildError::new("burst", quota.burst_size(), bound));
        }
        Ok(())
    }
}
