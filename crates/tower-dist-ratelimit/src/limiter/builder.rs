use std::{fmt, sync::Arc, time::Duration};

use super::Limiter;
use crate::{
    BuildError, Consistency, FailureMode, Observer, Policy, backend::Backend, limits::Settings,
};

/// Settings of a [`Limiter`], from [`Limiter::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`failure_mode`](Self::failure_mode) | [`FailureMode::Local`] with 1 instance |
/// | [`backend_timeout`](Self::backend_timeout) | 50 ms |
/// | [`shadow`](Self::shadow) | decisions can be rejections |
/// | [`name`](Self::name) | empty |
/// | [`observer`](Self::observer) | none |
/// | [`consistency`](Self::consistency) | [`Consistency::Exact`] |
/// | [`deny_cache`](Self::deny_cache) | on, for remote stores |
///
/// ```
/// use tower_dist_ratelimit::{Limiter, FailureMode, Policy, Quota, backend::Memory};
///
/// // Not one guess too many, whatever happens to the store.
/// let limiter = Limiter::builder(Memory::default(), Policy::new("logins", Quota::per_minute(5)).sliding_window_log())
///     .failure_mode(FailureMode::Closed)
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct LimiterBuilder {
    settings: Settings,
    policies: Vec<Policy>,
}

impl LimiterBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        Self {
            settings: Settings::new(backend),
            policies: vec![policy],
        }
    }
}

impl LimiterBuilder {
    /// Adds a policy. All policies count the same key: a check passes if all of them allow it; otherwise it is charged to none.
    ///
    /// The decision is that of one policy: the rejection with the longest wait, else the one with the fewest tokens remaining.
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
    /// // The limit of a second rejects this one. It is not charged to the day.
    /// assert_eq!(limiter.check("alice").await?.retry_after, Some(Duration::from_millis(500)));
    /// assert_eq!(limiter.peek("alice").await?.remaining, 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn limit(mut self, policy: Policy) -> Self {
        self.policies.push(policy);
        self
    }

    /// Who decides when the store fails or is late. With [`FailureMode::Closed`] nobody does, and the limiter's methods fail.
    pub fn failure_mode(mut self, mode: FailureMode) -> Self {
        self.settings.failure_mode = mode;
        self
    }

    /// How long the store is waited for at most, above zero and up to a minute.
    pub fn backend_timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// How this instance counts together with the others of its fleet; by default [`Consistency::Exact`].
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.settings.nearby.consistency = consistency;
        self
    }

    /// Whether rejections of a remote store are remembered; on by default. See
    /// [`RateLimitLayerBuilder::deny_cache`](crate::RateLimitLayerBuilder::deny_cache).
    pub fn deny_cache(mut self, on: bool) -> Self {
        self.settings.nearby.deny_cache = on;
        self
    }

    /// Decides and charges without rejecting: for trying a limit out in production.
    ///
    /// All decisions are [`allowed`](crate::Decision::allowed), and no check fails because the store does. Otherwise they are what
    /// the limit says: nothing is [`granted`](crate::Decision::granted) where it would have rejected. The [observer](Self::observer)
    /// is told of that, too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let limiter = Limiter::builder(Memory::default(), Policy::new("mails", Quota::per_hour(1))).shadow().build()?;
    /// let decisions = [limiter.check("alice").await?, limiter.check("alice").await?];
    /// assert_eq!(decisions.map(|one| (one.allowed, one.granted)), [(true, 1), (true, 0)]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn shadow(mut self) -> Self {
        self.settings.shadow = true;
        self
    }

    /// Sets the observer of the limit's events. An `Arc` of an observer is an observer, too.
    ///
    /// # Default
    ///
    /// No observer.
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.settings.watch.observer = Some(Arc::new(observer));
        self
    }

    /// Sets the limit's name: the label `name` of its events, metrics and log lines.
    ///
    /// # Default
    ///
    /// The empty name.
    pub fn name(mut self, name: &str) -> Self {
        self.settings.watch.name = name.into();
        self
    }

    /// Checks the settings and prepares the store.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::new`], and a setting that cannot work.
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
