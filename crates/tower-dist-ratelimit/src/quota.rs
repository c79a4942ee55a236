use std::time::Duration;

use crate::{BuildError, build_error::ensure};

/// Maximum window: 100 years of 365.25 days. In this crate's [arithmetic](crate::arithmetic#time), also the maximum
/// time since the epoch, which the backend chooses. Every later time counts as this maximum.
pub const HORIZON: Duration = Duration::from_secs(3_155_760_000);

/// The size of a limit: `limit` tokens in every `window`, with a `burst`.
///
/// By default a quota describes a token bucket. The bucket holds `burst` tokens, starts full, and gains `limit` tokens
/// per `window`, evenly. A request takes its [cost](crate::Policy::cost) out of the bucket, or is rejected and takes
/// nothing. A window or log algorithm compares `limit` with the tokens that it counts in a window. Only token and leaky
/// buckets have a burst.
///
/// # Default
///
/// `burst` equals `limit`. So with a bucket, an idle client can send a whole window's requests in a moment. In the
/// window that begins at that moment, it can send up to twice the limit. A smaller burst smooths the load. A burst of 1
/// usually keeps the admitted requests of a key at least `window / limit` apart.
///
/// # Errors
///
/// The constructors accept any number. Building a limit fails if `limit`, `window` or `burst` is zero, the window
/// exceeds 100 years, or a number is too large to count exactly. In [`Memory`](crate::backend::Memory), a bucket gains
/// at most about 2.9 tokens per nanosecond, and holds at most 2⁶¹ tokens. Other algorithms and backends can have other
/// bounds; the error states the bound.
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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

    /// `limit` tokens per `window`, which is 1 ns to 100 years.
    #[must_use]
    pub const fn new(limit: u64, window: Duration) -> Self {
        Self {
            limit,
            window,
            burst: limit,
        }
    }

    /// Sets the size of a token or leaky bucket in tokens, from 1 to 2⁶¹; some backends allow less. The size is the
    /// maximum that an idle client can take in a moment.
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

    /// The window to which the [`limit`](Self::limit) applies.
    #[must_use]
    pub const fn window(&self) -> Duration {
        self.window
    }

    /// The size of the bucket, in tokens, as set by [`burst`](Self::burst). By default, the limit.
    #[must_use]
    pub const fn burst_size(&self) -> u64 {
        self.burst
    }

    /// Returns a number of tokens, and the time in which they return. Usually these are the limit and the window. If
    /// the burst is larger than a limit above 0, they are the burst and the time in which a full burst returns. If the
    /// burst is 0, the number is 0.
    pub(crate) fn most(&self) -> (u64, Duration) {
        if self.burst <= self.limit || self.limit == 0 {
            return (self.allowed(), self.window);
        }
        (self.burst, self.time(self.burst))
    }

    /// Returns the time in which this number of tokens returns, rounded up. A limit of 0 counts as 1.
    pub(crate) fn time(&self, tokens: u64) -> Duration {
        let nanos = self.window.as_nanos().saturating_mul(tokens.into());
        let nanos = nanos.div_ceil(self.limit.max(1).into());
        u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos)
    }

    /// Returns the number of requests of one token that an empty queue accepts under a quota above zero. One more
    /// request would wait longer than `max_wait`.
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

    /// Returns whether the limit or the burst is 0. In layers and limiters, such a quota normally rejects requests of
    /// any cost. In a backend that is called directly, it rejects only costs above zero.
    #[must_use]
    pub fn is_zero(&self) -> bool {
        self.limit == 0 || self.burst == 0
    }

    /// Returns the quota, or `None` if it is invalid. A quota of zero is valid.
    pub(crate) fn usable(self) -> Option<Self> {
        (self.is_zero() || self.check().is_ok()).then_some(self)
    }

    /// Checks the bounds that all backends share.
    pub(crate) fn check(&self) -> Result<(), BuildError> {
        let window = self.window;
        ensure!(self.limit > 0, "limit" is 0, "at least 1");
        ensure!(!window.is_zero(), "window" is window, "at least 1ns");
        ensure!(window <= HORIZON, "window" is window, "at most 100 years");
        ensure!(self.burst > 0, "burst" is 0, "at least 1");
        Ok(())
    }

    /// Checks that the limit is at most `most`, for a backend that cannot count higher.
    ///
    /// # Errors
    ///
    /// Returns an error if the limit is above `most`.
    pub fn check_limit(&self, most: u64) -> Result<(), BuildError> {
        ensure!(self.limit <= most, "limit" is self.limit, "at most {most}");
        Ok(())
    }
}
