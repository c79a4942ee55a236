use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::layer::{Common, OneOf};
use tower_attempt::{Budget, BuildError, HedgeOverride, Mode};

use crate::class::{Class, Classes};
use crate::counters::Counters;
use crate::estimator::{Observation, QuantileTarget};
use crate::trigger::{DelayBounds, Percentile, Trigger, micros};

/// The settings in effect, computed from [`Config`]. A handle replaces them, but a call keeps the version with which it
/// began.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) config: Config,
    /// The quantile to learn, and the minimum size of a window. Used only if the trigger is a percentile.
    pub(crate) target: QuantileTarget,
    /// The bounds on the learned delay. `None` if the trigger is not a percentile.
    pub(crate) bounds: Option<DelayBounds>,
    max_hedges: u32,
    pub(crate) budget: Budget,
    /// Whether this layer deposits into the budget. Otherwise a layer above does.
    pub(crate) deposits: bool,
    /// Shared by all versions of the settings.
    pub(crate) latencies: Arc<Latencies>,
    /// Shared by all versions of the settings.
    pub(crate) counters: Arc<Counters>,
}

/// The user's settings, before defaults are applied. A field of type `Option` is `None` if its setting was not given.
#[derive(Clone, Debug, Default)]
pub(crate) struct Config {
    pub(crate) common: Common,
    pub(crate) trigger: OneOf<Trigger>,
    pub(crate) percentile: Percentile,
    pub(crate) max_hedges: Option<u32>,
    pub(crate) on_failure: Option<bool>,
}

/// The learned latencies of a layer.
#[derive(Debug)]
pub(crate) struct Latencies {
    pub(crate) classes: Classes,
    /// The instant from which the estimators count time.
    pub(crate) epoch: Instant,
    /// The share of calls above the quantile to learn, in billionths. It is 0 if the trigger is not a percentile. A
    /// call that began with another share is not recorded.
    above: AtomicU64,
}

impl Config {
    /// Checks the settings. `given` are the settings that the builder or the handle gives now. A setting that the
    /// trigger does not use is an error only if it is given now: earlier settings may stay unused, such as a
    /// `min_delay` after a change to a fixed delay.
    pub(crate) fn validate(&self, given: &Self) -> Result<(), BuildError> {
        self.trigger.validate()?;
        self.common.validate()?;
        self.trigger().validate(given.max_hedges)?;
        match (self.trigger(), self.trigger.setter()) {
            (Trigger::Percentile, _) => self.percentile.validate(self.common.budget()),
            (_, setter) => given.percentile.validate_unset(setter.unwrap_or_default()),
        }
    }

    fn trigger(&self) -> &Trigger {
        self.trigger.get().unwrap_or(&Trigger::Percentile)
    }

    /// Returns the layer's budget: the given one, or the default. With budgets by key, this is their template. If the
    /// default has the same ratio as the `former` budget, `former` stays, with its tokens.
    fn budget(&self, former: &Budget) -> Budget {
        match (self.common.budget(), self.trigger()) {
            (Some(budget), _) => budget.clone(),
            (None, Trigger::Percentile) => {
                // The budget's ratio is the share of calls that take longer than the percentile (*The Tail at Scale*).
                let budget = Budget::ratio(self.percentile.share());
                match former.share() == budget.share() {
                    true => former.clone(),
                    false => budget,
                }
            }
            // No default limit, because the user has chosen the times of hedges.
            (None, _) => Budget::unlimited(),
        }
    }

    /// Combines the settings of `given` with the settings of `self` that `given` leaves out. The name and the budgets
    /// by key of `self` stay: see [`Common::overridden_by`].
    fn overridden_by(&self, given: &Self) -> Result<Self, BuildError> {
        let trigger = given.trigger.get().map(|_| &given.trigger);
        Ok(Self {
            common: self.common.overridden_by(&given.common)?,
            trigger: trigger.unwrap_or(&self.trigger).clone(),
            percentile: self.percentile.overridden_by(&given.percentile),
            max_hedges: given.max_hedges.or(self.max_hedges),
            on_failure: given.on_failure.or(self.on_failure),
        })
    }
}

impl Settings {
    pub(crate) fn new(config: Config) -> Self {
        let latencies = Latencies {
            classes: Classes::default(),
            epoch: Instant::now(),
            above: AtomicU64::new(0),
        };
        let settings = Self {
            target: config.percentile.target(&Budget::unlimited()),
            bounds: None,
            max_hedges: 0,
            budget: Budget::unlimited(),
            deposits: true,
            config,
            latencies: Arc::new(latencies),
            counters: Arc::default(),
        };
        settings.resolved()
    }

    /// Returns these settings with the changes in `given`.
    pub(crate) fn changed(&self, given: &Config) -> Result<Self, BuildError> {
        let mut settings = self.clone();
        settings.config = self.config.overridden_by(given)?;
        settings.config.validate(given)?;
        Ok(settings.resolved())
    }

    /// Computes the fields that depend on `config`. If the quantile has changed, computes the learned thresholds again.
    fn resolved(mut self) -> Self {
        self.budget = self.config.budget(&self.budget);
        self.target = self.config.percentile.target(&self.budget);
        self.deposits = self.config.common.deposits();
        let trigger = self.config.trigger();
        self.max_hedges = trigger.max_hedges(self.config.max_hedges);
        let learns = *trigger == Trigger::Percentile;
        self.bounds = learns.then(|| self.config.percentile.bounds());
        let target = learns.then_some(self.target);
        let above = target.map_or(0, |target| target.above);
        let former = self.latencies.above.swap(above, Relaxed);
        if let Some(target) = target
            && former != above
        {
            let now = micros(self.latencies.epoch.elapsed());
            self.latencies.classes.apply(now, &target);
        }
        self
    }

    /// Returns these settings with the changes of a request's override, except the deadline. The service applies the
    /// deadline itself.
    pub(crate) fn overridden(&self, own: &HedgeOverride) -> Arc<Self> {
        let mut settings = self.clone();
        settings.max_hedges = own.max_hedges.unwrap_or(self.max_hedges);
        if settings.max_hedges == 0 {
            settings.config.common.mode = Some(Mode::Off);
        }
        if let Some(delay) = own.delay {
            settings.config.trigger.set("delay", Trigger::Fixed(delay));
            settings.bounds = None;
        }
        Arc::new(settings)
    }

    /// When the 0-based `hedge` is due, as an offset from the call's start.
    #[inline]
    pub(crate) fn due(&self, hedge: u32, learned: Option<Duration>) -> Option<Duration> {
        let trigger = self.config.trigger();
        trigger.due(hedge, self.max_hedges, learned)
    }

    /// Returns `class`. `None` stands for the class that all requests without a class of their own share.
    pub(crate) fn class<'a>(&'a self, class: Option<&'a Class>) -> &'a Class {
        class.unwrap_or(&self.latencies.classes.rest)
    }

    /// The delay of `class`, if the trigger learns: the learned delay, or the initial delay.
    #[inline]
    pub(crate) fn learned(&self, class: &Class) -> Option<Duration> {
        let bounds = self.bounds.as_ref()?;
        bounds.delay(class.estimator.threshold())
    }

    /// Records a sampled call that ends `now` and stands for `calls` calls, if the layer learns the same quantile as
    /// when the call began.
    pub(crate) fn learn(&self, class: &Class, seen: Observation, calls: u32, now: Instant) {
        if self.learns() && self.target.above == self.latencies.above.load(Relaxed) {
            let now = || micros(now.saturating_duration_since(self.latencies.epoch));
            let estimator = &class.estimator;
            estimator.record(seen, calls, now, &self.target);
        }
    }

    pub(crate) fn learns(&self) -> bool {
        self.bounds.is_some()
    }

    /// Deposits a successful call into the budget, unless a layer above does.
    ///
    /// A budget's ratio is a share of the calls that may be hedged, so only these deposit. gRPC's throttle has no such
    /// share: every successful call adds the throttle's `tokenRatio` (gRFC A6).
    #[inline]
    pub(crate) fn deposit(&self, is_eligible: bool, budget: &Budget) {
        if self.deposits && (is_eligible || budget.share().is_none()) {
            budget.deposit();
        }
    }
}
