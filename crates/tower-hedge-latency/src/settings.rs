use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::layer::{Common, OneOf};
use tower_attempt::{Budget, BuildError, HedgeOverride, Mode};

use crate::class::{Class, Classes};
use crate::counters::Counters;
use crate::estimator::Seen;
use crate::trigger::{Knobs as PercentileKnobs, Percentile, Trigger, micros};

/// The settings in force. A call uses one version of them throughout.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The settings of the user.
    pub(crate) knobs: Knobs,
    /// The settings that follow from them.
    pub(crate) tuning: Tuning,
    /// Shared by all versions.
    pub(crate) state: Arc<State>,
}

/// The settings of a layer, with the defaults of those that were left out.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    pub(crate) mode: Mode,
    trigger: Trigger,
    /// The settings of the trigger if it is a percentile.
    percentile: Percentile,
    max_hedges: Option<u32>,
    /// Whether an attempt's failure is a reason for the next hedge.
    pub(crate) on_failure: bool,
    pub(crate) budget: Budget,
    /// Whether this layer's eligible calls deposit into the budget, or another layer's.
    pub(crate) deposits: bool,
}

/// The settings of a builder. A setting that was not given is `None`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knobs {
    pub(crate) common: Common,
    pub(crate) trigger: OneOf<Trigger>,
    pub(crate) percentile: PercentileKnobs,
    pub(crate) max_hedges: Option<u32>,
    pub(crate) on_failure: Option<bool>,
}

/// The learned latencies and the counts of a layer.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) classes: Classes,
    pub(crate) counters: Counters,
    /// The origin of all times.
    pub(crate) epoch: Instant,
    /// The share of late calls that is being learned, in billionths. A call that began with another share is not
    /// recorded.
    above: AtomicU64,
}

impl Knobs {
    /// Checks the settings of a layer.
    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        self.trigger.validate()?;
        self.validate_unused(self)?;
        self.validate_together()
    }

    /// Rejects settings of a percentile in `given` if another trigger is set.
    fn validate_unused(&self, given: &Self) -> Result<(), BuildError> {
        match (self.trigger.get(), self.trigger.setter()) {
            (None | Some(Trigger::Percentile), _) | (_, None) => Ok(()),
            (Some(_), Some(setter)) => given.percentile.validate_unset(setter),
        }
    }

    /// Checks settings that may come from several layers against each other.
    fn validate_together(&self) -> Result<(), BuildError> {
        self.common.validate()?;
        let trigger = self.trigger.get().unwrap_or(&Trigger::Percentile);
        trigger.validate(self.max_hedges)?;
        match (trigger, self.common.budget()) {
            (Trigger::Percentile, budget) => self.percentile.validate(budget),
            _ => Ok(()),
        }
    }

    /// The settings in force. The default budget keeps its tokens, if its ratio is the `former` one.
    fn tuning(&self, former: Option<&Tuning>) -> Tuning {
        let trigger = self.trigger.get().cloned().unwrap_or(Trigger::Percentile);
        let budget = match (self.common.budget(), &trigger) {
            (Some(budget), _) => budget.clone(),
            (None, Trigger::Percentile) => {
                // The budget equals the share of calls that the trigger makes late (*The Tail at Scale*).
                let budget = Budget::ratio(self.percentile.share());
                let former = former.map(|former| &former.budget);
                let former = former.filter(|former| former.share() == budget.share());
                former.cloned().unwrap_or(budget)
            }
            // The caller chooses the time of hedges, and so their number.
            (None, _) => Budget::unlimited(),
        };
        Tuning {
            mode: self.common.mode(),
            trigger,
            percentile: self.percentile.percentile(&budget),
            max_hedges: self.max_hedges,
            on_failure: self.on_failure.unwrap_or(false),
            budget,
            deposits: self.common.deposits(),
        }
    }

    /// Combines the settings of `given` with the settings of `self` that `given` leaves out.
    fn overridden_by(&self, given: &Self) -> Result<Self, BuildError> {
        let (trigger, max_hedges) = match given.trigger.get() {
            None => (&self.trigger, self.max_hedges),
            // These triggers set the number of hedges themselves.
            Some(Trigger::Delays(_) | Trigger::FanOut(_)) => (&given.trigger, None),
            Some(_) => (&given.trigger, self.max_hedges),
        };
        Ok(Self {
            common: self.common.overridden_by(&given.common)?,
            trigger: trigger.clone(),
            percentile: self.percentile.overridden_by(&given.percentile),
            max_hedges: given.max_hedges.or(max_hedges),
            on_failure: given.on_failure.or(self.on_failure),
        })
    }
}

impl Tuning {
    fn overridden(&self, own: &HedgeOverride) -> Self {
        let mut tuning = self.clone();
        let hedges = self.trigger.max_hedges(self.max_hedges);
        let hedges = own.max_hedges.unwrap_or(hedges);
        if hedges == 0 {
            tuning.mode = Mode::Off;
        }
        tuning.max_hedges = Some(hedges);
        match (own.delay, &mut tuning.trigger) {
            (Some(delay), trigger) => *trigger = Trigger::Fixed(delay),
            (None, Trigger::Delays(delays)) => delays.truncate(hedges as usize),
            (None, Trigger::FanOut(attempts)) => *attempts = hedges + 1,
            (None, _) => {}
        }
        tuning
    }

    /// The share of the calls that a learned trigger makes late, in billionths.
    fn above(&self) -> u64 {
        match self.trigger {
            Trigger::Percentile => self.percentile.lesson.above,
            _ => 0,
        }
    }
}

impl Settings {
    pub(crate) fn new(knobs: Knobs) -> Self {
        let tuning = knobs.tuning(None);
        let state = State {
            classes: Classes::new(),
            counters: Counters::default(),
            epoch: Instant::now(),
            above: AtomicU64::new(tuning.above()),
        };
        let state = Arc::new(state);
        Self {
            knobs,
            tuning,
            state,
        }
    }

    /// Returns these settings with the changes in `given`.
    pub(crate) fn changed(&self, given: &Knobs) -> Result<Self, BuildError> {
        let knobs = self.knobs.overridden_by(given)?;
        knobs.validate_unused(given)?;
        knobs.validate_together()?;
        let tuning = knobs.tuning(Some(&self.tuning));
        let state = Arc::clone(&self.state);
        state.above.store(tuning.above(), Relaxed);
        if tuning.trigger == Trigger::Percentile && tuning.above() != self.tuning.above() {
            let now = micros(state.epoch.elapsed());
            state.classes.apply(now, &tuning.percentile.lesson);
        }
        Ok(Self {
            knobs,
            tuning,
            state,
        })
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.tuning.budget
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.state.counters
    }

    /// The learned percentile, if the trigger is one.
    #[inline]
    pub(crate) fn percentile(&self) -> Option<&Percentile> {
        match self.tuning.trigger {
            Trigger::Percentile => Some(&self.tuning.percentile),
            _ => None,
        }
    }

    /// The settings of a request with an override. The override's deadline is an instant, and so not part of the
    /// settings.
    pub(crate) fn overridden(&self, own: &HedgeOverride) -> Arc<Self> {
        Arc::new(Self {
            tuning: self.tuning.overridden(own),
            ..self.clone()
        })
    }

    /// When the 0-based `hedge` is due, as an offset from the call's start.
    #[inline]
    pub(crate) fn due(&self, hedge: u32, learned: Option<Duration>) -> Option<Duration> {
        let Tuning {
            trigger,
            max_hedges,
            ..
        } = &self.tuning;
        trigger.due(hedge, *max_hedges, learned)
    }

    /// The class; `None` is the class of all other requests.
    pub(crate) fn class<'a>(&'a self, class: Option<&'a Class>) -> &'a Class {
        class.unwrap_or(&self.state.classes.rest)
    }

    /// The delay that `class` has learned, if the trigger learns.
    #[inline]
    pub(crate) fn learned(&self, class: &Class) -> Option<Duration> {
        class.delay(self.percentile()?)
    }

    /// Records a call that ends `now` and represents `calls` calls, if the trigger learns.
    pub(crate) fn learn(&self, class: &Class, seen: Seen, calls: u32, now: Instant) {
        if let Some(percentile) = self.percentile()
            && percentile.lesson.above == self.state.above.load(Relaxed)
        {
            let now = || micros(now.saturating_duration_since(self.state.epoch));
            let estimator = &class.estimator;
            estimator.record(seen, calls, now, &percentile.lesson);
        }
    }

    pub(crate) fn learns(&self) -> bool {
        self.percentile().is_some()
    }

    /// Whether a call is recorded or counted at all, given whether its request may be hedged.
    pub(crate) fn watches(&self, may_hedge: bool) -> bool {
        may_hedge && self.tuning.mode != Mode::Off
    }

    /// Whether hedges are sent, not only counted.
    pub(crate) fn sends(&self) -> bool {
        self.tuning.mode == Mode::On
    }

    /// Deposits a successful call, unless the layer above deposits.
    ///
    /// A ratio refers to eligible calls. gRPC's throttle has no ratio and counts every call (gRFC A6).
    #[inline]
    pub(crate) fn deposit(&self, is_eligible: bool, budget: &Budget) {
        if self.tuning.deposits && (is_eligible || budget.share().is_none()) {
            budget.deposit();
        }
    }
}
