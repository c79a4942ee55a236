mod decided;
mod decisions;
mod source;

use std::time::Duration;

pub use decided::Decided;
pub use decisions::Decisions;
pub use source::Source;

/// The decision of one policy on one request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
///
/// let limiter = Limiter::new(Memory::default(), Policy::new("mail", Quota::per_second(10).burst(1)))?;
/// let first = limiter.check("alice").await?;
/// assert!(first.allowed && first.remaining == 0 && first.reset_after == Duration::from_millis(100));
///
/// let second = limiter.check("alice").await?;
/// assert!(!second.allowed);
/// assert_eq!(second.retry_after, Some(Duration::from_millis(100)));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Decision {
    /// Whether this policy allows the request. With several policies a request passes if all of them allow it. If
    /// another policy rejects the request, this policy takes no tokens, or usually refunds them. Always `true` from a
    /// [`Limiter`](crate::Limiter) in [shadow](crate::LimiterBuilder::shadow) mode.
    pub allowed: bool,
    /// The origin of the decision.
    pub source: Source,
    /// The quota's limit, in tokens per window. With [`Source::Local`], the limit of this process's share.
    pub limit: u64,
    /// The whole tokens that remain after this decision. In a leaky queue, the number of free places.
    pub remaining: u64,
    /// The tokens that were taken: the cost, or more, up to the [maximum grant](crate::backend::Charge::up_to). Zero
    /// if this policy or another one rejects the request, and with [`Source::Allowed`], which counts nothing.
    pub granted: u64,
    /// The wait until this policy allows the same request, if no tokens of the key are taken or refunded in the
    /// meantime. Unless the [`Source`] or the backend notes otherwise, the wait is exact: this policy allows the same
    /// request at the end of the wait. It rejects the same request one nanosecond, or one tick of the backend's clock,
    /// earlier. Zero if this policy allows the request. In [shadow](crate::LimiterBuilder::shadow) mode, a
    /// [`Limiter`](crate::Limiter) keeps the wait of a request that the policy would reject.
    ///
    /// `None` if the request can never pass under the quota: its cost is above the burst, or above the limit of an
    /// algorithm without a burst, or the quota is zero. With [`Source::Local`], the quota is this process's share. With
    /// [`Source::Denied`], the wait is the time until the next probe of the backend, or `None` while the circuit is
    /// closed.
    pub retry_after: Option<Duration>,
    /// The time until the key has no used tokens, if no tokens are taken or refunded in the meantime. Then the bucket
    /// is full, the queue is empty, or the window has ended. Rounded up. Reliable only with [`Source::Backend`] and
    /// [`Source::Local`].
    pub reset_after: Duration,
    /// The time that an allowed request waits for its turn in a [leaky queue](crate::Policy::leaky_queue), rounded up.
    /// Zero if no policy of the layer or limiter is a leaky queue.
    ///
    /// A [`Limiter`](crate::Limiter) with several policies returns the decision of one policy, with the longest delay
    /// of all its queues. In [shadow](crate::LimiterBuilder::shadow) mode, a limiter returns a delay of zero.
    pub delay: Duration,
}

impl Decision {
    /// Returns a decision that allows the request and takes `granted` tokens. For implementations of
    /// [`Backend`](crate::backend::Backend).
    #[must_use]
    pub const fn allow(granted: u64, limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self {
            allowed: true,
            source: Source::Backend,
            limit,
            remaining,
            granted,
            retry_after: Some(Duration::ZERO),
            reset_after,
            delay: Duration::ZERO,
        }
    }

    /// Returns whether the policy's quota rejected the request. Returns `false` for a rejection by a failure mode
    /// without a counter.
    pub(crate) fn is_violated(&self) -> bool {
        !self.allowed && self.source.has_counted()
    }

    /// Returns this decision with another source.
    pub(crate) fn by(mut self, source: Source) -> Self {
        self.source = source;
        self
    }

    /// Returns a decision that rejects the request. Without a `retry_after` the request can never pass. For
    /// implementations of [`Backend`](crate::backend::Backend).
    #[must_use]
    pub const fn reject(
        limit: u64,
        remaining: u64,
        retry_after: Option<Duration>,
        reset_after: Duration,
    ) -> Self {
        Self {
            allowed: false,
            retry_after,
            ..Self::allow(0, limit, remaining, reset_after)
        }
    }
}
