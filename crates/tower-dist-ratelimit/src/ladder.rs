//! The path of a request when the backend fails: timeout, circuit breaker, then the failure mode.

mod breaker;
mod circuit;
mod failure_mode;
mod fallback;
mod pauses;
mod recovery;

use std::{
    collections::hash_map::RandomState,
    fmt,
    hash::BuildHasher,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    time::Duration,
};

use tokio::time::Instant;

pub use self::failure_mode::FailureMode;
pub(crate) use self::{breaker::Leave, fallback::Fallback};
use self::{
    breaker::{Breaker, Change},
    pauses::Pauses,
    recovery::Recovery,
};
use crate::{BuildError, Event, Policy, backend::BackendError, observe::Watch};

/// The circuit breaker, the failure mode, and the recovery after an outage.
pub(crate) struct Ladder {
    watch: Watch,
    breaker: Breaker,
    /// The origin of the breaker's times.
    made: Instant,
    /// Whether the backend has ever answered asynchronously. From then on, an immediate answer comes from local state
    /// and is no evidence of the backend's health.
    answers_later: AtomicBool,
    recovery: Recovery,
    /// After an outage, the maximum time between the returns of the first and the last process to the backend.
    all_return: Duration,
    pub(crate) instead: Instead,
}

/// The failure mode, with its state.
pub(crate) enum Instead {
    Open,
    Closed,
    /// Boxed, because the fallback is large and rarely used.
    Decide(Box<Fallback>),
}

impl Ladder {
    pub(crate) fn new(
        on_error: FailureMode,
        deadline: Duration,
        policies: &[Policy],
        is_remote: bool,
        watch: Watch,
    ) -> Result<Self, BuildError> {
        let instead = match on_error {
            FailureMode::Open => Instead::Open,
            FailureMode::Closed => Instead::Closed,
            FailureMode::Local { instances } => {
                Instead::Decide(Box::new(Fallback::new(policies, instances, is_remote)?))
            }
        };
        Ok(Self {
            watch,
            breaker: Breaker::new(deadline, RandomState::new().hash_one(())),
            made: Instant::now(),
            answers_later: AtomicBool::new(false),
            recovery: Recovery::default(),
            all_return: Pauses::new(deadline).all_return(),
            instead,
        })
    }

    /// Returns the permission to query the backend. While the circuit is open, only one request gets it when a probe is due.
    #[inline]
    pub(crate) fn leave(&self) -> Result<Leave, BackendError> {
        self.breaker
            .leave(|| self.now())
            .map_err(|_| BackendError::circuit_open())
    }

    /// Returns the time until the next probe, or `None` while the circuit is closed.
    pub(crate) fn shut_for(&self) -> Option<Duration> {
        self.breaker.open_for(|| self.now())
    }

    /// If the process has recently returned to the backend, returns its share, and whether requests are charged to the share
    /// in addition to the backend.
    pub(crate) fn recovering(&self) -> Option<(&Fallback, bool)> {
        match &self.instead {
            Instead::Decide(fallback) if !self.recovery.is_over() => {
                let is_shared = self.recovery.is_shared(self.now())?;
                Some((fallback, is_shared))
            }
            _ => None,
        }
    }

    /// Records an immediate decision of the backend.
    #[inline]
    pub(crate) fn answered_at_once(&self, leave: Leave) {
        if leave == Leave::Quiet {
            return;
        }
        if self.answers_later.load(Relaxed) {
            self.breaker.spared(leave, self.now());
        } else {
            self.answered(leave, true);
        }
    }

    /// Records that the backend answers asynchronously.
    pub(crate) fn answers_later(&self) {
        if !self.answers_later.load(Relaxed) {
            self.answers_later.store(true, Relaxed);
        }
    }

    /// Records a decision of the backend. With `forget`, a record without failures is cleared.
    pub(crate) fn answered(&self, leave: Leave, forget: bool) {
        // Before the circuit closes, so that each request that finds the circuit closed is also charged to the share.
        if let (Leave::Probe(_), Instead::Decide(fallback)) = (leave, &self.instead) {
            let lasting = fallback.lasting();
            self.recovery.returned(self.now(), self.all_return, lasting);
        }
        let change = self.breaker.answered(leave, self.now(), forget);
        self.tell(change, None);
    }

    /// Records an error or a timeout of the backend.
    pub(crate) fn failed(&self, leave: Leave, error: &BackendError) {
        let change = self.breaker.failed(leave, self.now());
        self.tell(change, Some(error));
    }

    /// Logs and emits changes of the circuit, not every failure.
    fn tell(&self, change: Option<Change>, error: Option<&BackendError>) {
        match (change, error) {
            (Some(Change::Opened), Some(error)) => {
                #[cfg(feature = "tracing")]
                tracing::warn!(name = self.watch.name(), %error, instead = ?self.instead, "rate-limit circuit opened: the failure mode decides");
                self.watch.emit(|| Event::CircuitOpened(error));
            }
            (Some(Change::Closed), _) => {
                #[cfg(feature = "tracing")]
                tracing::info!(
                    name = self.watch.name(),
                    "rate-limit circuit closed: the backend decides"
                );
                self.watch.emit(|| Event::CircuitClosed);
            }
            _ => {}
        }
    }

    fn now(&self) -> Duration {
        Instant::now().saturating_duration_since(self.made)
    }
}

impl fmt::Debug for Instead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Open => "Open",
            Self::Closed => "Closed",
            Self::Decide(_) => "Local",
        })
    }
}
