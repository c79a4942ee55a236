mod decisions;

use std::time::Duration;

pub use decisions::Decisions;

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
    /// refuses, this one has charged nothing.
    pub allowed: bool,
    /// The quota's limit, in tokens per window.
    pub limit: u64,
    /// Whole tokens that are left after this decision.
    pub remaining: u64,
    /// How long to wait before the same request can pass, if nobody else takes the tokens. It is exact: a request is
    /// refused one nanosecond before it and allowed at it. Zero when allowed; `None` when it can never pass, because its
    /// cost is above the burst.
    pub retry_after: Option<Duration>,
    /// How long until the bucket is full again, if nobody takes from it. Rounded up to a nanosecond.
    pub reset_after: Duration,
}

impl Decision {
    /// The request passes. For those who write a [`Backend`](crate::backend::Backend).
    #[must_use]
    pub const fn allow(limit: u64, remaining: u64, reset_after: Duration) -> Self {
        Self {
            allowed: true,
            limit,
            remaining,
            retry_after: Some(Duration::ZERO),
            reset_after,
        }
    }

    /// The request is refused; without a `retry_after`, for ever. For those who write a
    /// [`Backend`](crate::backend::Backend).
    #[must_use]
    pub const fn refuse(
        limit: u64,
        remaining: u64,
        retry_after: Option<Duration>,
        reset_after: Duration,
    ) -> Self {
        Self {
            allowed: false,
            limit,
            remaining,
            retry_after,
            reset_after,
        }
    }
}
