use std::time::Duration;

use tokio::time::Instant;

/// The instant at which the caller stops waiting: see [`RetryOverride::deadline`](crate::RetryOverride::deadline) and
/// [`HedgeOverride::deadline`](crate::HedgeOverride::deadline).
///
/// No extra attempt is scheduled for this instant or later. If a retry's delay would end that late, the call ends
/// immediately.
///
/// A retry layer with an `attempt_timeout`, a `deadline` or an `on_timeout` also ends the call at the deadline of a
/// `RetryOverride`. At the deadline, any other layer ends neither an attempt in flight nor a retry's wait for the
/// service to become ready.
///
/// ```
/// use std::time::Duration;
/// use tower_attempt::{Deadline, RetryOverride};
///
/// let deadline = Deadline::after(Duration::from_secs(2));
/// assert!(deadline.leaves(Duration::from_secs(1)));
/// assert!(!deadline.leaves(Duration::from_secs(2)));
/// let request = http::Request::get("/").extension(RetryOverride::new().deadline(deadline)).body(())?;
/// assert!(request.extensions().get::<RetryOverride>().is_some());
/// # Ok::<_, http::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deadline(Option<Instant>);

impl Deadline {
    /// No deadline. In a [`RetryOverride`](crate::RetryOverride), `NEVER` lifts the layer's `retry_until` and
    /// `deadline`, but not a `grpc-timeout`.
    pub const NEVER: Self = Self(None);

    /// A deadline at this instant.
    #[must_use]
    pub const fn at(instant: Instant) -> Self {
        Self(Some(instant))
    }

    /// A deadline `duration` from now. A duration beyond the clock's range gives [`NEVER`](Self::NEVER).
    #[must_use]
    pub fn after(duration: Duration) -> Self {
        Self(Instant::now().checked_add(duration))
    }

    /// Returns the earlier of this deadline and `other`. `None` is no deadline.
    #[must_use]
    pub fn or_earlier(self, other: Option<Self>) -> Self {
        match (self.0, other) {
            (Some(one), Some(Self(Some(other)))) => Self(Some(one.min(other))),
            (None, Some(other)) => other,
            _ => self,
        }
    }

    /// Returns the instant; `None` for [`NEVER`](Self::NEVER).
    #[must_use]
    pub const fn instant(self) -> Option<Instant> {
        self.0
    }

    /// Whether `instant` is before the deadline.
    #[must_use]
    pub fn is_after(&self, instant: Instant) -> bool {
        self.0.is_none_or(|deadline| instant < deadline)
    }

    /// Whether a wait of `delay` from now would end before the deadline. Reads the clock only if there is a deadline.
    #[must_use]
    pub fn leaves(&self, delay: Duration) -> bool {
        self.0.is_none_or(|deadline| {
            let end = Instant::now().checked_add(delay);
            end.is_some_and(|end| end < deadline)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_wait_must_end_before_the_deadline() {
        let second = Duration::from_secs(1);
        let deadline = Deadline::after(second);
        assert!(deadline.leaves(second - Duration::from_nanos(1)));
        assert!(!deadline.leaves(second));
        assert!(!deadline.leaves(Duration::MAX));
        assert!(deadline.is_after(Instant::now()));
        tokio::time::advance(second).await;
        assert!(!deadline.is_after(Instant::now()));
        assert!(!deadline.leaves(Duration::ZERO));
    }

    #[test]
    fn no_deadline_leaves_time_for_any_wait() {
        assert_eq!(Deadline::after(Duration::MAX), Deadline::NEVER);
        assert!(Deadline::NEVER.leaves(Duration::MAX));
        assert!(Deadline::NEVER.is_after(Instant::now()));
    }
}
