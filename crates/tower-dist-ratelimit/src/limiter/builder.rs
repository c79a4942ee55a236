use std::{fmt, sync::Arc, time::Duration};

use super::Limiter;
use crate::{
    BuildError, Consistency, FailureMode, Policy, limits::Settings, setters::shared_setters,
};

/// Settings of a [`Limiter`], from [`Limiter::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`name`](Self::name) | empty |
/// | [`failure_mode`](Self::failure_mode) | [`FailureMode::Local`] with 1 instance |
/// | [`backend_timeout`](Self::backend_timeout) | 50 ms |
/// | [`consistency`](Self::consistency) | [`Consistency::Exact`] |
/// | [`deny_cache`](Self::deny_cache) | on, for remote backends |
/// | [`shadow`](Self::shadow) | off: the limit rejects requests |
/// | [`observer`](Self::observer) | none |
///
/// ```
/// use tower_dist_ratelimit::{Limiter, FailureMode, Policy, Quota, backend::Memory};
///
/// // While the backend fails, checks return an error, so no login passes.
/// let limiter = Limiter::builder(Memory::default(), Policy::new("logins", Quota::per_minute(5)).sliding_window_log())
///     .failure_mode(FailureMode::Closed)
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct LimiterBuilder {
    pub(super) settings: Settings,
    pub(super) policies: Vec<Policy>,
}

impl LimiterBuilder {
    shared_setters!();

    /// Adds a policy. All policies count the same key. A check passes if all policies allow it. Otherwise the backend
    /// usually charges no policy, or [refunds](crate::Source::Parts) the charges.
    ///
    /// The limiter returns one decision. If policies reject the check, the limiter returns the rejection with the
    /// longest wait; a `retry_after` of `None` counts as the longest. Otherwise it returns the decision with the fewest
    /// remaining tokens. The decision's [`delay`](crate::Decision::delay) is the longest delay of all leaky queues, or
    /// zero in [shadow](Self::shadow) mode.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let limiter = Limiter::builder(Memory::default(), Policy::new("second", Quota::per_second(2)))
    ///     .limit(Policy::new("day", Quota::per_day(3)).fixed_window())
    ///     .build()?;
    /// assert_eq!(limiter.check("alice").await?.remaining, 1);
    /// assert!(limiter.check("alice").await?.allowed);
    /// // The limit per second rejects this check, so the limit per day is not charged.
    /// assert_eq!(limiter.check("alice").await?.retry_after, Some(Duration::from_millis(500)));
    /// // The limit per second has the fewest remaining tokens.
    /// assert_eq!(limiter.peek("alice").await?.remaining, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Builds the limiter.
    ///
    /// # Errors
    ///
    /// The errors of [`Limiter::new`], an invalid setting, and more policies than can be decided together.
    pub fn build(self) -> Result<Limiter, BuildError> {
        const BOUND: &str = "unset in a Limiter";
        for policy in &self.policies {
            policy.check_ignores_requests(BOUND)?;
            if policy.missing_key.is_some() {
                let error = BuildError::new("missing_key", "set", BOUND);
                return Err(error.in_policy(policy.name()));
            }
        }
        Ok(Limiter {
            limits: Arc::new(self.settings.build(self.policies)?),
            quota: None,
        })
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("policies", &self.policies)
            .field("failure_mode", &self.settings.failure_mode)
            .field("backend_timeout", &self.settings.timeout)
            .finish_non_exhaustive()
    }
}
