mod decided;
mod decisions;
mod source;

use std::time::Duration;

pub use decided::Decided;
pub use decisions::Decisions;
pub use source::Source;

/// What one policy says about one request.
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
    /// Whether this policy lets the request pass. In a set the request passes when every policy says so; if another one
    /// rejects, this one has charged nothing.
    pub allowed: bool,
    /// Who decided.
    pub source: Source,
    /// The quota's limit, in tokens per window.
    pub limit: u64,
    /// Whole tokens that are left after this decision.
    pub remaining: u64,
    /// The tokens that were taken: the cost; or more, up to what was [wanted](crate::backend::Charge::up_to). Zero when
    /// rejected, and when another policy of the set rejects.
    pub granted: u64,
    /// How long to wait before the same request can pass, if nobody else takes the tokens. It is exact: a request is
    /// rejected one nanosecond before it and allowed at it. Zero when allowed; `None` when it can never pass, because its
    /// cost is above the burst, or the limit where there is no burst. Of a decision by nobody ([`Source::Denied`]): how
    /// long until the store is asked again, if it is not asked now.
    pub retry_after: Option<Duration>,
    /// How long until nothing counts as used any more, if nobody takes from it: until the bucket is full, the queue is
    /// empty, the window is over. Rounded up to a nanosecond.
    pub reset_after: Duration,
    /// How long an allowed request has to wait for its turn in a [leaky queue](crate::Policy::leaky_queue), rounded up
    /// to a nanosecond; what was taken was taken for that time. Zero with all other algorithms.
    pub delay: Duration,
}

impl Decision {
    /// The request passes and has taken the tokens `granted`. For those who write a
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

    /// Whether the policy has rejected, and not only nobody allowed.
    pub(crate) fn is_violated(&self) -> bool {
        !self.allowed && self.source.has_counted()
    }

    /// The request is rejected; without a `retry_after`, for ever. For those who write a
    /// [`Backend`](crate::backend::Backend).
    #[must_use]
    pub const fn reject(
        limit: u64,
        remaining: u64,
        retry_after: Option<Duration>,
        reset_after: Duration,
    ) -> Self {
        Self {
            allowed: false,
            source: Source::Backend,
            limit,
            remaining,
            granted: 0,
            retry_after,
            reset_after,
            delay: Duration::ZERO,
        }
    }
}
