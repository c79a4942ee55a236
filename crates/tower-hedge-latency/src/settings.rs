use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Budget, Budgets, BuildError};

use crate::class::{Class, Classes};
use crate::counters::Counters;
use crate::estimator::Seen;
use crate::trigger::{Knobs as PercentileKnobs, Trigger, micros};

/// At most as much load as a trigger at the 95th percentile adds (*The Tail at Scale*).
const BUDGET: f64 = 0.05;
/// A service that starts slowly should not get a hundred hedges at once.
const INITIAL: u32 = 10;

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
    pub(crate) tuning: Tuning,
    /// Outlives every change.
    pub(crate) state: Arc<State>,
}

/// What [`retune`](crate::HedgeHandle::retune) takes over.
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

/// The numbers of a builder.
#[derive(Clone, Debug)]
pub(crate) struct Knobs {
    /// `None` is a percentile.
    pub(crate) trigger: Option<Trigger>,
    pub(crate) percentile: PercentileKnobs,
    pub(crate) max_hedges: Option<u32>,
    pub(crate) on_failure: bool,
    pub(crate) budget: Option<Budget>,
    /// In place of it, of which the rules pick one.
    pub(crate) budgets: Option<Budgets>,
    pub(crate) deposits: bool,
    pub(crate) mode: Mode,
}

/// What a layer has learned and counted.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) classes: Classes,
    pub(crate) counters: Counters,
    /// Times count from here.
    pub(crate) epoch: Instant,
}

impl Default for Knobs {
    fn default() -> Self {
        Self {
            trigger: None,
            percentile: PercentileKnobs::default(),
            max_hedges: None,
            on_failure: false,
            budget: None,
            budgets: None,
            deposits: true,
            mode: Mode::default(),
        }
    }
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
        Trigger::validate(self.trigger.as_ref(), self.max_hedges)
    }

    pub(crate) fn settings(self) -> Settings {
        let budget = match (self.budget, &self.trigger) {
            (Some(budget), _) => budget,
            (None, None) => Budget::ratio(BUDGET).initial(INITIAL),
            // The caller knows when hedges go out, and so how many.
            (None, Some(_)) => Budget::unlimited(),
        };
        let drawn_on = self.budgets.as_ref().map_or(&budget, Budgets::template);
        let learned = || Trigger::Percentile(self.percentile.percentile(drawn_on));
        Settings {
            tuning: Tuning {
                mode: self.mode,
                trigger: self.trigger.unwrap_or_else(learned),
                max_hedges: self.max_hedges,
                on_failure: self.on_failure,
                budget,
                deposits: self.deposits,
            },
            state: Arc::new(State {
                classes: Classes::new(),
                counters: Counters::default(),
                epoch: Instant::now(),
            }),
        }
    }
}

impl Settings {
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
        if let Trigger::Percentile(percentile) = &self.tuning.trigger {
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
