use std::{fmt, sync::Arc, time::Duration};

use super::Limiter;
use crate::{
    BuildError, MissingKey, OnError, Policy,
    backend::{Backend, DEADLINE},
    limits::Limits,
};

/// Settings of a [`Limiter`], from [`Limiter::builder`].
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | [`on_backend_error`](Self::on_backend_error) | [`OnError::LocalFallback`] with a fleet of 1 |
/// | [`backend_deadline`](Self::backend_deadline) | 50 ms |
///
/// ```
/// use tower_dist_ratelimit::{Limiter, OnError, Policy, Quota, backend::Memory};
///
/// // Not one guess too many, whatever happens to the store.
/// let limiter = Limiter::builder(Memory::default(), Policy::new("logins", Quota::per_minute(5)).sliding_log())
///     .on_backend_error(OnError::Deny)
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[must_use = "a builder does nothing until it builds"]
pub struct LimiterBuilder {
    backend: Arc<dyn Backend>,
    policy: Policy,
    on_error: OnError,
    deadline: Duration,
}

impl LimiterBuilder {
    pub(super) fn new(backend: Arc<dyn Backend>, policy: Policy) -> Self {
        Self {
            backend,
            policy,
            on_error: OnError::default(),
            deadline: DEADLINE,
        }
    }

    /// Who decides when the store fails or is late. With [`OnError::Deny`] nobody does, and the limiter's methods fail.
    pub fn on_backend_error(self, action: OnError) -> Self {
        Self {
            on_error: action,
            ..self
        }
    }

    /// How long the store is waited for at most, above zero and up to a minute.
    pub fn backend_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Checks the settings and prepares the store.
    ///
    /// # Errors
    ///
    /// Those of [`Limiter::new`], and a setting that cannot work.
    pub fn build(self) -> Result<Limiter, BuildError> {
        const BOUND: &str = "unset in a Limiter";
        let Self {
            backend,
            policy,
            on_error,
            deadline,
        } = self;
        let cost = policy.only_fixed(BOUND)?;
        if policy.missing_key != MissingKey::default() {
            return Err(BuildError::new("missing_key", "set", BOUND).in_policy(policy.name()));
        }
        let limits = Limits::new(backend, vec![policy], on_error, deadline)?;
        Ok(Limiter {
            limits: Arc::new(limits),
            cost,
            quota: None,
        })
    }
}

impl fmt::Debug for LimiterBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimiterBuilder")
            .field("policy", &self.policy)
            .field("on_error", &self.on_error)
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
