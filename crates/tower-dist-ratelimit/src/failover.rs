//! The path of a request when the backend fails: timeout, circuit breaker, then the failure mode.

mod breaker;
mod circuit;
mod failure_mode;
mod fallback;
mod pauses;
mod recovery;

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;

pub use self::failure_mode::FailureMode;
pub(crate) use self::{breaker::Access, fallback::Fallback};
use self::{breaker::Breaker, recovery::Recovery};
use crate::{
    BuildError, Event, Policy, backend::BackendError, background::Background, deny::DenyCache,
    observe::Emitter,
};

/// The circuit breaker, the failure mode, and the recovery after an outage.
pub(crate) struct Failover {
    emitter: Emitter,
    breaker: Breaker,
    /// The origin of the times of the breaker and the recovery.
    created: Instant,
    /// Whether the backend has ever answered a query with `Answer::Later`. From then on, an immediate decision is
    /// assumed to come from local state, so it is no evidence of the backend's health.
    answers_later: AtomicBool,
    recovery: Recovery,
    /// The failure mode, for log lines.
    #[cfg(feature = "tracing")]
    mode: FailureMode,
    /// The limits with this process's share of each quota, if the mode is local.
    pub(crate) fallback: Option<Fallback>,
    /// Corrections that the backend has not answered yet. They run in the background, because their callers, such as
    /// the destructor of a `Meter`, cannot wait for them. Dropping the `Failover` cancels them.
    pub(crate) corrections: Background,
    pub(crate) lost_corrections: Arc<AtomicU64>,
    /// The deny cache, if the guard passes the answers to it.
    pub(crate) deny_cache: Option<Arc<DenyCache>>,
}

impl Failover {
    pub(crate) fn new(
        mode: FailureMode,
        timeout: Duration,
        policies: &[Policy],
        emitter: Emitter,
    ) -> Result<Self, BuildError> {
        let fallback = match mode {
            FailureMode::Open | FailureMode::Closed => None,
            FailureMode::Local { instances } => Some(Fallback::new(policies, instances)?),
        };
        Ok(Self {
            emitter,
            breaker: Breaker::new(timeout, RandomState::new().hash_one(())),
            created: Instant::now(),
            answers_later: AtomicBool::new(false),
            recovery: Recovery::default(),
            #[cfg(feature = "tracing")]
            mode,
            fallback,
            corrections: Background::default(),
            lost_corrections: Arc::default(),
            deny_cache: None,
        })
    }

    /// Returns the permission to query the backend. While the circuit is open, normally only one probe at a time gets
    /// the permission.
    #[inline]
    pub(crate) fn permit(&self) -> Result<Access, BackendError> {
        let permit = self.breaker.permit(|| self.now());
        permit.map_err(|_| BackendError::circuit_open())
    }

    /// Returns the time until the next probe is due, or `None` while the circuit is closed.
    pub(crate) fn open_for(&self) -> Option<Duration> {
        self.breaker.open_for(|| self.now())
    }

    /// Returns this process's share, and whether requests are charged to it in addition to the backend. `None` if the
    /// failure mode is not local, or if no [recovery](Recovery) is in progress.
    pub(crate) fn recovering(&self) -> Option<(&Fallback, bool)> {
        let fallback = self.fallback.as_ref();
        let fallback = fallback.filter(|_| !self.recovery.is_over())?;
        Some((fallback, self.recovery.is_shared(self.now())?))
    }

    /// Handles an immediate decision of the backend, which can come from local state.
    #[inline]
    pub(crate) fn answered_immediately(&self, permit: Access) {
        if permit == Access::Quiet {
            return;
        }
        if self.answers_later.load(Relaxed) {
            self.breaker.release(permit, self.now());
        } else {
            self.answered(permit, true);
        }
    }

    /// Records that the backend answers asynchronously.
    pub(crate) fn answers_later(&self) {
        if !self.answers_later.load(Relaxed) {
            self.answers_later.store(true, Relaxed);
        }
    }

    /// Records a decision of the backend. With `forget`, clears the recent results if there is no failure among them.
    pub(crate) fn answered(&self, permit: Access, forget: bool) {
        // The recovery begins before the circuit closes. Otherwise a request could find the circuit closed, and be
        // charged only to the backend and not also to this process's share of the quota.
        if let (Access::Probe(_), Some(fallback)) = (permit, &self.fallback) {
            let (spread, retention) = (self.breaker.pauses.return_spread(), fallback.retention());
            self.recovery.returned(self.now(), spread, retention);
        }
        if self.breaker.answered(permit, self.now(), forget) {
            #[cfg(feature = "tracing")]
            tracing::info!(
                name = self.emitter.name(),
                "rate-limit circuit closed: the backend decides"
            );
            self.emitter.emit(|| Event::CircuitClosed);
        }
    }

    /// Records an error or a timeout of the backend. If this opens the circuit, emits an event, and with the `tracing`
    /// feature also logs it.
    pub(crate) fn failed(&self, permit: Access, error: &BackendError) {
        if self.breaker.failed(permit, self.now()) {
            #[cfg(feature = "tracing")]
            tracing::warn!(name = self.emitter.name(), %error, failure_mode = ?self.mode, "rate-limit circuit opened: the failure mode decides");
            self.emitter.emit(|| Event::CircuitOpened(error));
        }
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.created)
    }
}
