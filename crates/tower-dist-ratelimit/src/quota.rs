use std::time::Duration;

use crate::BuildError;

/// The longest window, and the time for which the arithmetic is exact: 100 years of 365.25 days.
pub const HORIZON: Duration = Duration::from_secs(3_155_760_000);

/// How much is allowed: `limit` tokens in every `window`, and `burst` of them at once.
///
/// To a [`Policy`](crate::Policy) that says nothing else, a quota is a token bucket. The bucket holds `burst` tokens,
/// starts full, and gains `limit` tokens per `window`, evenly. A request takes its [cost](crate::Policy::cost) out of it,
/// or is rejected and takes nothing. To windows and logs it is the limit in a window, and there is no burst.
///
/// # Default
///
/// `burst` is the `limit`. So a client that was idle can send a whole window's worth at once, and in the window that
/// starts there up to twice the limit. A smaller burst smooths the load that reaches you; a burst of 1 spaces the
/// requests evenly.
///
/// # Errors
///
/// Constructors take anything. A `limit`, `window` or `burst` of zero, a window above 100 years, and numbers too large
/// to count exactly (about 2.9 tokens a nanosecond, a burst or a limit of 2⁶¹; a fixed window has less the shorter it is,
/// and says how much) are reported when the limiter is built.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::Quota;
///
/// let quota = Quota::per_minute(600).burst(100);
/// assert_eq!(quota, Quota::new(600, Duration::from_secs(60)).burst(100));
/// assert_eq!((quota.limit(), quota.burst_size()), (600, 100));
/// assert_eq!(Quota::per_day(1_000).burst_size(), 1_000);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    limit: u64,
    window: Duration,
    burst: u64,
}

impl Quota {
    /// `limit` tokens per second.
    #[must_use]
    pub const fn per_second(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(1))
    }

    /// `limit` tokens per minute.
    #[must_use]
    pub const fn per_minute(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(60))
    }

    /// `limit` tokens per hour.
    #[must_use]
    pub const fn per_hour(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(3600))
    }

    /// `limit` tokens per 24 hours.
    #[must_use]
    pub const fn per_day(limit: u64) -> Self {
        Self::new(limit, Duration::from_secs(86_400))
    }

    /// `limit` tokens per `window`, a length of time from 1 ns to 100 years.
    #[must_use]
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            burst: limit,
        }
    }

    /// The size of a token or leaky bucket: how many tokens a client that was idle can take at once, from 1 to 2⁶¹.
    ///
    /// # Default
    ///
    /// The limit.
    #[must_use]
    pub const fn burst(mut self, tokens: u64) -> Self {
        self.burst = tokens;
        self
    }

    /// Tokens per [`window`](Self::window).
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The time in which [`limit`](Self::limit) tokens come.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The size of the bucket, in tokens, as set by [`burst`](Self::burst).
    #[must_use]
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// The tokens that can be used at most in the time in which they come back: the limit and the window, or the burst and
    /// its time where the burst is larger.
    pub(crate) fn most(&self) -> (u64, Duration) {
        if self.burst <= self.limit || self.limit == 0 {
            return (self.limit, self.window);
        }
        let nanos = self.window.as_nanos().saturating_mul(self.burst.into());
        let nanos = nanos.div_ceil(self.limit.into());
        let window = u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos);
        (self.burst, window)
    }

    /// Tokens that an empty queue of this rate takes, one after the other, until the next would wait longer.
    pub(crate) fn places(&self, max_wait: Duration) -> u64 {
        let window = self.window.as_nanos().max(1);
        let waiting = max_wait.as_nanos().saturating_mul(self.limit.into()) / window;
        u64::try_from(waiting).map_or(u64::MAX, |waiting| waiting.saturating_add(1))
    }

    /// Returns the limit, or 0 if the burst is 0.
    #[must_use]
    pub fn allowed(&self) -> u64 {
        if self.burst == 0 { 0 } else { self.limit }
    }

    /// Returns whether the limit or the burst is 0. Such a quota rejects every cost.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.limit == 0 || self.burst == 0
    }

    /// Checks what no backend can do: nothing, never, and longer than anything runs.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        if self.limit == 0 {
            return Err(BuildError::new("limit", 0, "at least 1"));
        }
        if self.window.is_zero() {
            return Err(BuildError::new("window", "0ns", "at least 1ns"));
        }
        if self.window > HORIZON {
            return Err(BuildError::new(
                "window",
                format_args!("{:?}", self.window),
                "at most 100 years",
            ));
        }
        if self.burst == 0 {
            return Err(BuildError::new("burst", 0, "at least 1"));
        }
        Ok(())
    }

    /// Checks that the limit is at most `most`, for a backend that cannot count further.
    ///
    /// # Errors
    ///
    /// A larger limit.
    pub fn check_limit(&self, most: u64) -> Result<(), BuildError> {
        if self.limit > most {
            let bound = format_args!("at most {most}");
            return Err(BuildError::new("limit", self.limit, bound));
        }
        Ok(())
    }
}
