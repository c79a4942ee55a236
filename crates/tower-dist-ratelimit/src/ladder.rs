//! Who decides, when the store does not: deadline, circuit breaker, then what was chosen for that.

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

/// The rungs below the store.
pub(crate) struct Ladder {
    watch: Watch,
    breaker: Breaker,
    /// Where the breaker's time begins.
    made: Instant,
    /// Whether the store has ever said that it will answer later. Then what it says at once is said from memory, and tells
    /// nothing about how it is.
    answers_later: AtomicBool,
    recovery: Recovery,
    /// How long processes take to return, from the first to the last one.
    all_return: Duration,
    pub(crate) instead: Instead,
}

/// What is done instead of asking the store.
pub(crate) enum Instead {
    Open,
    Closed,
    /// Boxed, because most never need it.
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

    /// Leave to ask the store, unless it is left alone or this process returns to it. Two relaxed loads, which is all that a
    /// store costs that never fails.
    #[inline]
    pub(crate) fn leave_if_closed(&self) -> Option<Leave> {
        let leave = self.breaker.leave_if_closed()?;
        self.recovery.is_over().then_some(leave)
    }

    /// Leave to ask the store, also for a probe.
    #[inline]
    pub(crate) fn leave(&self) -> Result<Leave, BackendError> {
        self.breaker
            .leave(|| self.now())
            .map_err(|_| BackendError::circuit_open())
    }

    /// How long the store is left alone, if it is.
    pub(crate) fn shut_for(&self) -> Option<Duration> {
        self.breaker.open_for(|| self.now())
    }

    /// The share of this process, if it has lately returned; and whether requests are charged to it, too.
    pub(crate) fn recovering(&self) -> Option<(&Fallback, bool)> {
        match &self.instead {
            Instead::Decide(fallback) if !self.recovery.is_over() => {
                let is_shared = self.recovery.is_shared(self.now())?;
                Some((fallback, is_shared))
            }
            _ => None,
        }
    }

    /// The store has decided at once.
    #[inline]
    pub(crate) fn answered_at_once(&self, leave: Leave) {
        if leave == Leave::Quiet {
            return;
        }
        if self.answers_later.load(Relaxed) {
            self.breaker.spared(leave, self.now());
        } else {
            self.tell(self.breaker.answered(leave, self.now(), true), None);
        }
    }

    /// The store will answer.
    pub(crate) fn answers_later(&self) {
        if !self.answers_later.load(Relaxed) {
            self.answers_later.store(true, Relaxed);
        }
    }

    /// The store has decided, some time after it was asked.
    pub(crate) fn answered_later(&self, leave: Leave) {
        let change = self.breaker.answered(leave, self.now(), false);
        self.tell(change, None);
    }

    /// The store has failed, or is late.
    pub(crate) fn failed(&self, leave: Leave, error: &BackendError) {
        let change = self.breaker.failed(leave, self.now());
        self.tell(change, Some(error));
    }

    /// Changes, and not every request.
    fn tell(&self, change: Option<Change>, error: Option<&BackendError>) {
        match (change, error) {
            (Some(Change::Opened), Some(error)) => {
                #[cfg(feature = "tracing")]
                tracing::warn!(name = self.watch.name(), %error, instead = ?self.instead, "rate limits are not the store's any more");
                self.watch.emit(|| Event::CircuitOpened(error));
            }
            (Some(Change::Closed), _) => {
                if let Instead::Decide(fallback) = &self.instead {
                    let lasting = fallback.lasting();
                    self.recovery.returned(self.now(), self.all_return, lasting);
                }
                #[cfg(feature = "tracing")]
                tracing::info!(
                    name = self.watch.name(),
                    "rate limits are the store's again"
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
