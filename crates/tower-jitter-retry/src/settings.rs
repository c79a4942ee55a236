use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::{Budget, BuildError, Deadline};

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
    seeds: Seeds,
}

/// The numbers of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    pub(crate) max_attempts: u32,
    pub(crate) max_hint: Duration,
    pub(crate) retry_until: Option<Duration>,
    pub(crate) backoff: Backoff,
    pub(crate) budget: Budget,
    /// Whether successful calls deposit into the budget, or another layer's do.
    pub(crate) deposits: bool,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            max_attempts: MAX_ATTEMPTS,
            max_hint: MAX_HINT,
            retry_until: None,
            backoff: Backoff::default(),
            budget: Budget::default(),
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
        self.backoff.validate()?;
        self.budget.validate()
    }
}

impl Settings {
    pub(crate) fn new(knobs: Knobs) -> Self {
        let seeds = knobs.backoff.seeds();
        Self { knobs, seeds }
    }

    /// When a call that begins now sends no further attempt. Reads the clock only if it has to.
    pub(crate) fn deadline(&self) -> Deadline {
        match self.knobs.retry_until {
            Some(limit) => Deadline::after(limit),
            None => Deadline::NEVER,
        }
    }

    /// The delays of one call.
    pub(crate) fn schedule(&self) -> Schedule {
        Schedule::new(self.knobs.backoff, self.seeds.next())
    }
}

/// Changes a retry layer's numbers while it is in use.
///
/// ```
/// use tower_jitter_retry::RetryLayer;
///
/// let layer = RetryLayer::http();
/// let handle = layer.handle();
/// let off = RetryLayer::builder().max_attempts(1).build()?;
/// handle.retune(&off);
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct RetryHandle(Arc<ArcSwap<Settings>>);

impl RetryHandle {
    pub(crate) fn new(settings: &Arc<ArcSwap<Settings>>) -> Self {
        Self(Arc::clone(settings))
    }

    /// Takes over another layer's attempts, backoff, budget, longest hint and time limit.
    ///
    /// Every service of this handle's layer follows from its next call on; calls that are under way
    /// end as they began. Rules and observer stay. The budget is then shared with `layer`.
    pub fn retune<P, O>(&self, layer: &RetryLayer<P, O>) {
        self.0.store(layer.settings.load_full());
    }
}
