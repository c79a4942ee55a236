use std::{fmt, sync::Arc, time::Duration};

use super::Limiter;
use crate::{
    BuildError, Consistency, FailureMode, NoObserver, Observer, Policy,
    backend::{Backend, DEADLINE},
    limits::Limits,
    nearby::Nearby,
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
/// | [`observer`](Self::observer) | [`NoObserver`] |
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
pub struct LimiterBuilder<O = NoObserver> {
    backend: Arc<dyn Backend>,
    policy: Policy,
    on_error: FailureMode,
    deadline: Duration,
    shadow: bool,
    /// Whether either of the two was asked for.
    watched: bool,
    observer: O,
    nearby: Nearby,
}

impl LimiterBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        Self {
            backend,
            policy,
            on_error: FailureMode::default(),
            deadline: DEADLINE,
            shadow: false,
            watched: false,
            observer: NoObserver,
            nearby: Nearby::default(),
        }
    }
}

impl<O> LimiterBuilder<O> {
    /// Who decides when the store fails or is late. With [`FailureMode::Closed`] nobody does, and the limiter's methods fail.
    pub fn failure_mode(self, action: FailureMode) -> Self {
        Self {
            on_error: action,
            ..self
        }
    }

    /// How long the store is waited for at most, above zero and up to a minute.
    pub fn backend_timeout(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// How this instance counts together with the others of its fleet; by default [`Consistency::Exact`].
    pub fn consistency(mut self, consistency: Consistency) -> Self {
        self.nearby.consistency = consistency;
        self
    }

    /// Whether rejections of a remote store are remembered; on by default. See
    /// [`RateLimitLayerBuilder::deny_cache`](crate::RateLimitLayerBuilder::deny_cache).
    pub fn deny_cache(mut self, on: bool) -> Self {
        self.nearby.deny_cache = on;
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
    pub fn shadow(self) -> Self {
        Self {
            shadow: true,
            watched: true,
            ..self
        }
    }

    /// Tells an observer what is decided. An `Arc` of an observer is one, too.
    pub fn observer<P: Observer>(self, observer: P) -> LimiterBuilder<P> {
        LimiterBuilder {
            backend: self.backend,
            policy: self.policy,
            on_error: self.on_error,
            deadline: self.deadline,
            shadow: self.shadow,
            watched: true,
            nearby: self.nearby,
            observer,
        }
    }

    /// Checks the settings and prepares the store.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::new`], and a setting that cannot work.
    pub fn build(self) -> Result<Limiter<O>, BuildError> {
        const BOUND: &str = "unset in a Limiter";
        let Self {
            backend,
            policy,
            on_error,
            deadline,
            shadow,
            watched,
            observer,
            nearby,
        } = self;
        let cost = policy.only_fixed(BOUND)?;
        if policy.missing_key.is_some() {
            return Err(BuildError::new("missing_key", "set", BOUND).in_policy(policy.name()));
        }
        let limits = Limits::new(backend, vec![policy], on_error, deadline, nearby)?;
        Ok(Limiter {
            id: limits.rules[0].id,
            limits: Arc::new(limits),
            cost,
            quota: None,
            observer,
            shadow,
            watched,
        })
    }
}

impl<O> fmt::Debug for LimiterBuilder<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("policy", &self.policy)
            .field("on_error", &self.on_error)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
