use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::Instant;
use tower_attempt::{Budget, Budgets, BuildError};

use crate::class::{Class, Classes};
use crate::counters::Counters;
use crate::estimator::Seen;
use crate::trigger::{Knobs as PercentileKnobs, Trigger, micros};

/// Whether a hedge layer hedges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// Hedges what is late.
    #[default]
    On,
    /// Learns and counts, and sends nothing: what [`HedgeCounts::shadowed`](crate::HedgeCounts::shadowed)
    /// comes to would have been sent. Neither the budget nor the readiness of the service is asked.
    Shadow,
    /// Passes every call through, and learns nothing from it. Only a [`grpc_throttle`](crate::Budget::grpc_throttle)
    /// keeps counting, for the layers that share it.
    Off,
}

/// What can be changed while the layer is in use. One call sees one version of it throughout.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// What was asked for.
    pub(crate) knobs: Knobs,
    /// What follows from it.
    pub(crate) tuning: Tuning,
    /// Outlives every change.
    pub(crate) state: Arc<State>,
}

/// The settings in force, with the defaults of those that were left out.
#[derive(Clone, Debug)]
pub(crate) struct Tuning {
    pub(crate) mode: Mode,
    pub(crate) trigger: Trigger,
    max_hedges: Option<u32>,
    /// Whether an attempt's failure is a reason for the next hedge.
    pub(crate) on_failure: bool,
    pub(crate) budget: Budget,
    /// Whether eligible calls deposit into the budget, or another layer's do.
    pub(crate) deposits: bool,
}

/// The settings of a builder, `None` for those that were left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Knobs {
    /// Empty unless set.
    pub(crate) name: Arc<str>,
    /// `None` is a percentile.
    pub(crate) trigger: Option<Trigger>,
    pub(crate) percentile: PercentileKnobs,
    pub(crate) max_hedges: Option<u32>,
    pub(crate) on_failure: Option<bool>,
    pub(crate) budget: Option<Budget>,
    /// In place of it, of which the rules pick one.
    pub(crate) budgets: Option<Budgets>,
    pub(crate) deposits: Option<bool>,
    pub(crate) mode: Option<Mode>,
}

/// What a layer has learned and counted.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) classes: Classes,
    pub(crate) counters: Counters,
    /// Times count from here.
    pub(crate) epoch: Instant,
    /// The share of late calls that is learned at present, in billionths. Calls that began when it was another
    /// teach nothing.
    above: AtomicU64,
    /// Held while the settings change.
    changing: Mutex<()>,
}

impl Knobs {
    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        match &self.trigger {
            None => self.percentile.validate()?,
            Some(_) => self.percentile.validate_unset()?,
        }
        if let Some(budget) = &self.budget {
            budget.validate()?;
        }
        if let Some(budgets) = &self.budgets {
            budgets.validate()?;
            if let Some(budget) = &self.budget {
                let bound = "unset: each request has one that is picked for it";
                return Err(BuildError::new("budget", budget, bound));
            }
        }
        Trigger::validate(self.trigger.as_ref(), self.max_hedges)?;
        self.validate_together()
    }

    /// Checks settings that may come from several layers against each other.
    fn validate_together(&self) -> Result<(), BuildError> {
        if self.trigger.is_some() {
            return Ok(());
        }
        self.percentile.validate()?;
        let budget = self.budgets.as_ref().map(Budgets::template);
        match budget.or(self.budget.as_ref()) {
            Some(budget) => self.percentile.validate_with(budget),
            None => Ok(()),
        }
    }

    pub(crate) fn settings(self) -> Settings {
        let tuning = self.tuning(None);
        let state = State {
            classes: Classes::new(),
            counters: Counters::default(),
            epoch: Instant::now(),
            above: AtomicU64::new(tuning.above()),
            changing: Mutex::new(()),
        };
        Settings {
            tuning,
            knobs: self,
            state: Arc::new(state),
        }
    }

    /// The settings in force. The default budget keeps its tokens, if its ratio is the `former` one.
    fn tuning(&self, former: Option<&Tuning>) -> Tuning {
        let budget = match (&self.budget, &self.trigger) {
            (Some(budget), _) => budget.clone(),
            (None, None) => {
                // As much load as the trigger adds (*The Tail at Scale*).
                let budget = Budget::ratio(self.percentile.share());
                let former = former.map(|former| &former.budget);
                let former = former.filter(|former| former.share() == budget.share());
                former.cloned().unwrap_or(budget)
            }
            // The caller knows when hedges go out, and so how many.
            (None, Some(_)) => Budget::unlimited(),
        };
        let drawn_on = self.budgets.as_ref().map(Budgets::template);
        let drawn_on = drawn_on.or(self.budget.as_ref()).unwrap_or(&budget);
        let learned = || Trigger::Percentile(self.percentile.percentile(drawn_on));
        Tuning {
            mode: self.mode.unwrap_or_default(),
            trigger: self.trigger.clone().unwrap_or_else(learned),
            max_hedges: self.max_hedges,
            on_failure: self.on_failure.unwrap_or(false),
            budget,
            deposits: self.deposits.unwrap_or(true),
        }
    }

    /// The settings of `given`, and for those that it leaves out these.
    fn overridden_by(&self, given: &Self) -> Self {
        let trigger = match given.percentile.quantile {
            Some(_) => &None,
            None => &self.trigger,
        };
        Self {
            name: Arc::clone(&self.name),
            trigger: given.trigger.as_ref().or(trigger.as_ref()).cloned(),
            percentile: self.percentile.overridden_by(&given.percentile),
            max_hedges: given.max_hedges.or(self.max_hedges),
            on_failure: given.on_failure.or(self.on_failure),
            budget: given.budget.as_ref().or(self.budget.as_ref()).cloned(),
            // The rules pick one of these.
            budgets: self.budgets.clone(),
            deposits: given.deposits.or(self.deposits),
            mode: given.mode.or(self.mode),
        }
    }
}

impl Tuning {
    /// The share of the calls that a learned trigger makes late, in billionths.
    fn above(&self) -> u64 {
        match &self.trigger {
            Trigger::Percentile(percentile) => percentile.lesson.above,
            _ => 0,
        }
    }
}

impl Settings {
    /// Changes the settings in force to those that are `given`.
    pub(crate) fn change(current: &ArcSwap<Self>, given: &Knobs) -> Result<(), BuildError> {
        let state = Arc::clone(&current.load().state);
        let changing = state
            .changing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let former = current.load();
        let knobs = former.knobs.overridden_by(given);
        knobs.validate_together()?;
        let tuning = knobs.tuning(Some(&former.tuning));
        let trigger = tuning.trigger.clone();
        state.above.store(tuning.above(), Relaxed);
        current.store(Arc::new(Self {
            knobs,
            tuning,
            state: Arc::clone(&state),
        }));
        if let Trigger::Percentile(percentile) = trigger
            && former.tuning.above() != percentile.lesson.above
        {
            let now = micros(state.epoch.elapsed());
            state.classes.apply(now, &percentile.lesson);
        }
        drop(changing);
        Ok(())
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

    /// The class, `None` being that of all the rest.
    pub(crate) fn class<'a>(&'a self, class: Option<&'a Class>) -> &'a Class {
        class.unwrap_or(&self.state.classes.rest)
    }

    /// The delay that `class` has learned, if the trigger learns.
    #[inline]
    pub(crate) fn learned(&self, class: &Class) -> Option<Duration> {
        match &self.tuning.trigger {
            Trigger::Percentile(percentile) => class.delay(percentile),
            _ => None,
        }
    }

    /// Learns from a call that ends `now` and counts for so many, if the trigger learns.
    pub(crate) fn learn(&self, class: &Class, seen: Seen, calls: u32, now: Instant) {
        if let Trigger::Percentile(percentile) = &self.tuning.trigger
            && percentile.lesson.above == self.state.above.load(Relaxed)
        {
            let now = || micros(now.saturating_duration_since(self.state.epoch));
            let estimator = &class.estimator;
            estimator.record(seen, calls, now, &percentile.lesson);
        }
    }

    pub(crate) fn learns(&self) -> bool {
        matches!(self.tuning.trigger, Trigger::Percentile(_))
    }

    /// Whether anything is learned from or counted of a call, given whether its request may be hedged.
    pub(crate) fn watches(&self, may_hedge: bool) -> bool {
        may_hedge && self.tuning.mode != Mode::Off
    }

    /// Whether hedges are sent, and not only counted.
    pub(crate) fn sends(&self) -> bool {
        self.tuning.mode == Mode::On
    }

    /// Deposits a call that succeeded, unless the layer above does.
    ///
    /// A ratio is one of the eligible calls; gRPC's throttle, which has no ratio, counts every call (gRFC A6).
    #[inline]
    pub(crate) fn deposit(&self, is_eligible: bool, budget: &Budget) {
        if self.tuning.deposits && (is_eligible || budget.share().is_none()) {
            budget.deposit();
        }
    }
}
