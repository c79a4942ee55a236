use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::{Budget, Budgets, BuildError, Deadline};

use crate::RetryLayer;
use crate::backoff::{Backoff, Schedule, Seeds};

/// Longest server hint that is obeyed: a minute is about as long as a caller still waits.
const MAX_HINT: Duration = Duration::from_secs(60);
/// AWS SDKs, and the SRE book's chapter on handling overload.
const MAX_ATTEMPTS: u32 = 3;

/// What can be changed while the layer is in use. One call sees one version of it throughout.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) knobs: Knobs,
    /// Whether there can be a second attempt.
    pub(crate) may_repeat: bool,
    /// How long after a call's start attempts may go out.
    last_start: Option<Duration>,
    /// Shared by all versions, so that none gives out a sequence again.
    seeds: Arc<Seeds>,
}

/// Whether a retry layer repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// What is right to repeat is repeated.
    #[default]
    On,
    /// Nothing is repeated or changed, and the observer is told what would have been, down to the delay
    /// and the budget, whose tokens are taken: give the layer a budget of its own. Requests are not
    /// copied, so whether a body would have been too long to repeat is not seen.
    Shadow,
    /// Nothing is repeated, copied or changed. The budget is kept up to date, for those that share it.
    Off,
}

/// The numbers of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    /// Empty unless set.
    pub(crate) name: Arc<str>,
    pub(crate) mode: Mode,
    pub(crate) max_attempts: u32,
    pub(crate) max_hint: Duration,
    pub(crate) retry_until: Option<Duration>,
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) deadline: Option<Duration>,
    pub(crate) backoff: Backoff,
    pub(crate) budget: Budget,
    /// Whether somebody asked for it.
    pub(crate) has_own_budget: bool,
    /// Which the rules take one out of for each request, in place of `budget`; here to be validated.
    pub(crate) budgets: Option<Budgets>,
    /// Whether successful calls deposit into the budget, or another layer's do.
    pub(crate) deposits: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            name: Arc::default(),
            mode: Mode::On,
            max_attempts: MAX_ATTEMPTS,
            max_hint: MAX_HINT,
            retry_until: None,
            attempt_timeout: None,
            deadline: None,
            backoff: Backoff::default(),
            budget: Budget::default(),
            has_own_budget: false,
            budgets: None,
            deposits: true,
        }
    }
}

impl Knobs {
    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        if self.max_attempts == 0 {
            let bound = "at least 1, the first attempt included";
            return Err(BuildError::new("max_attempts", self.max_attempts, bound));
        }
        for (name, limit) in [
            ("attempt_timeout", self.attempt_timeout),
            ("deadline", self.deadline),
        ] {
            if let Some(Duration::ZERO) = limit {
                return Err(BuildError::new(name, Duration::ZERO, "longer than nothing"));
            }
        }
        self.backoff.validate()?;
        self.budget.validate()?;
        if let Some(budgets) = &self.budgets {
            budgets.validate()?;
            if self.has_own_budget {
                let bound = "unset: each request has one that is picked for it";
                return Err(BuildError::new("budget", &self.budget, bound));
            }
        }
        Ok(())
    }
}

impl Settings {
    pub(crate) fn new(knobs: Knobs) -> Self {
        let seeds = Arc::new(knobs.backoff.seeds());
        Self::with_seeds(knobs, seeds)
    }

    /// With what every call asks worked out beforehand.
    fn with_seeds(knobs: Knobs, seeds: Arc<Seeds>) -> Self {
        let limits = [knobs.retry_until, knobs.deadline];
        Self {
            may_repeat: knobs.max_attempts > 1 && knobs.mode == Mode::On,
            last_start: limits.into_iter().flatten().min(),
            knobs,
            seeds,
        }
    }

    /// When a call that begins now sends no further attempt. Reads the clock only if it has to.
    #[inline]
    pub(crate) fn last_start(&self) -> Deadline {
        self.last_start.map_or(Deadline::NEVER, Deadline::after)
    }

    fn in_mode(&self, mode: Mode) -> Self {
        let knobs = Knobs {
            mode,
            ..self.knobs.clone()
        };
        Self::with_seeds(knobs, Arc::clone(&self.seeds))
    }

    /// The delays of one call.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.knobs.backoff, self.seeds.next())
    }
}

/// Changes a retry layer's numbers while it is in use, or switches it off.
///
/// ```
/// use tower_jitter_retry::{Mode, RetryLayer};
///
/// let layer = RetryLayer::http();
/// let handle = layer.handle();
/// handle.set_mode(Mode::Off);
/// // Back on, and with other numbers.
/// handle.retune(&RetryLayer::builder().max_attempts(2).build()?);
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryHandle(Arc<ArcSwap<Settings>>);

impl RetryHandle {
    pub(crate) fn new(settings: &Arc<ArcSwap<Settings>>) -> Self {
        Self(Arc::clone(settings))
    }

    /// Takes over another layer's mode, attempts, backoff, budget, longest hint and time limits.
    ///
    /// Every service of this handle's layer follows from its next call on; calls that are under way
    /// end as they began. Rules, observer and the kinds of time limits stay, and so do the budgets of
    /// [`budget_by`](crate::RetryLayerBuilder::budget_by), which `layer` says whether to pay into. The
    /// budget is then shared with `layer`.
    pub fn retune<P, O, T>(&self, layer: &RetryLayer<P, O, T>) {
        self.0.store(layer.settings.load_full());
    }

    /// Switches retries on or off, or has them counted only, from the next call on.
    pub fn set_mode(&self, mode: Mode) {
        self.0.rcu(|settings| settings.in_mode(mode));
    }
}
