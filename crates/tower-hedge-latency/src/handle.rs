use std::sync::Arc;
use std::time::Duration;

use tower_attempt::layer::{Common, Live};
use tower_attempt::{Budget, BuildError, Mode};

use crate::settings::{Knobs, Settings};
use crate::trigger::{Percentile, Trigger};
use crate::{HedgeCounts, HedgeLayer};

/// Watches a hedge layer, and changes it while it is in use.
///
/// ```
/// use std::time::Duration;
/// use tower_hedge_latency::{HedgeLayer, Mode};
///
/// // Count first, hedge later.
/// let layer = HedgeLayer::builder().percentile(0.95).mode(Mode::Shadow).build()?;
/// let handle = layer.handle();
/// assert_eq!(handle.counts().shadowed, 0);
/// handle.set_mode(Mode::On);
///
/// // Nothing is learned yet.
/// assert_eq!(handle.delay(), None);
/// handle.set_fixed(Duration::from_millis(20));
/// assert_eq!(handle.delay(), Some(Duration::from_millis(20)));
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HedgeHandle(Live<Settings>);

impl<P, O, A, L> HedgeLayer<P, O, A, L> {
    /// Returns a handle that watches the layer, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> HedgeHandle {
        HedgeHandle(self.0.settings.clone())
    }
}

impl HedgeHandle {
    /// Returns the counts since the layer was made.
    #[must_use]
    pub fn counts(&self) -> HedgeCounts {
        self.0.load().state.counters.read()
    }

    /// Returns a clone of the layer's budget, which shares its tokens. With
    /// [`budget_by`](crate::HedgeLayerBuilder::budget_by) it is the budget of requests without a key.
    #[must_use]
    pub fn budget(&self) -> Budget {
        let settings = self.0.load();
        settings.knobs.common.without_key(&settings.tuning.budget)
    }

    /// Returns the quantile of latency after which the first hedge is due: the one that was set, or the default,
    /// moved up as far as the budget pays. `None` if the trigger is not a percentile.
    ///
    /// ```
    /// use tower_hedge_latency::{Budget, HedgeLayer};
    ///
    /// let layer = HedgeLayer::builder().budget(Budget::ratio(0.02)).build()?;
    /// assert_eq!(layer.handle().quantile(), Some(0.98));
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    #[must_use]
    pub fn quantile(&self) -> Option<f64> {
        self.0.load().percentile().map(Percentile::quantile)
    }

    /// Returns when the first hedge of a call is due, as an offset from its start. `None` while a percentile has too
    /// few samples. With `delays` and `fan_out` it is the first delay.
    ///
    /// With [`key`](crate::HedgeLayerBuilder::key) this is for the calls beyond the 256th key.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let settings = self.0.load();
        let learned = settings.learned(&settings.state.classes.rest);
        settings.due(0, learned)
    }

    /// Returns the delay that is learned for each [`key`](crate::HedgeLayerBuilder::key), by the keys' names;
    /// empty if the trigger is not a percentile.
    ///
    /// # Cost
    ///
    /// A list of up to 256 keys.
    #[must_use]
    pub fn delays_by_key(&self) -> Vec<(Arc<str>, Option<Duration>)> {
        let settings = self.0.load();
        let delays = |percentile| settings.state.classes.delays(percentile);
        settings.percentile().map(delays).unwrap_or_default()
    }

    /// Returns the current mode.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.load().tuning.mode
    }

    /// Sets the mode: switches hedging on or off, or only counts hedges.
    pub fn set_mode(&self, mode: Mode) {
        // A mode contradicts no other setting.
        let _ = self.change(|given| given.common.mode = Some(mode));
    }

    /// Sets the budget. Who deposits into it stays: this layer, or with
    /// [`shared_budget`](crate::HedgeLayerBuilder::shared_budget) a layer above.
    ///
    /// # Errors
    ///
    /// Returns an error if the budget is out of its range or cannot pay for the percentile, or if the layer has
    /// budgets by key.
    pub fn set_budget(&self, budget: Budget) -> Result<(), BuildError> {
        let deposits = self.0.load().tuning.deposits;
        self.change(|given| given.common = Common::of_budget(budget, deposits))
    }

    /// Sets the trigger to a percentile. Hedges are due by it immediately, from what was learned before.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not between 0 and 1, or if the budget cannot pay for it.
    pub fn set_percentile(&self, quantile: f64) -> Result<(), BuildError> {
        self.change(|given| {
            given.percentile.quantile = Some(quantile);
            given.trigger.set("percentile", Trigger::Percentile);
        })
    }

    /// Sets the trigger to a fixed delay.
    pub fn set_fixed(&self, delay: Duration) {
        // A delay contradicts no other setting.
        let _ = self.change(|given| given.trigger.set("fixed", Trigger::Fixed(delay)));
    }

    /// Sets the maximum number of hedges per call.
    ///
    /// # Errors
    ///
    /// Returns an error if it is not from 1 to 100, or if the trigger is `delays` or `fan_out`.
    pub fn set_max_hedges(&self, hedges: u32) -> Result<(), BuildError> {
        self.change(|given| given.max_hedges = Some(hedges))
    }

    /// Sets the minimum delay of a percentile.
    ///
    /// # Errors
    ///
    /// Returns an error if it is above the maximum, or if the trigger is not a percentile.
    pub fn set_min_delay(&self, delay: Duration) -> Result<(), BuildError> {
        self.change(|given| given.percentile.min_delay = Some(delay))
    }

    /// Sets the maximum delay of a percentile.
    ///
    /// # Errors
    ///
    /// Returns an error if it is below the minimum, or if the trigger is not a percentile.
    pub fn set_max_delay(&self, delay: Duration) -> Result<(), BuildError> {
        self.change(|given| given.percentile.max_delay = Some(delay))
    }

    /// Sets all settings that were given to the builder of another layer. Settings that it was not given stay.
    ///
    /// Every service of this handle's layer follows from its next call on. Calls in flight end with the settings
    /// that they began with. Counts and learned latencies stay: another percentile is read from them
    /// immediately. The budget is then shared with `layer`. `delays` and `fan_out` replace a `max_hedges`. Name,
    /// protocol, rules, observer, budgets by key, the destinations of hedges and the handling of losers stay, whatever
    /// `layer` has.
    ///
    /// # Errors
    ///
    /// Returns an error and changes nothing if a setting of `layer` contradicts one that stays: a percentile and
    /// a budget that cannot pay for it, a `max_delay` below the `min_delay`, a `max_hedges` and `delays`, one budget
    /// and budgets by key.
    pub fn retune<P, O, A, L>(&self, layer: &HedgeLayer<P, O, A, L>) -> Result<(), BuildError> {
        let given = &layer.0.settings.load().knobs;
        self.0.change(|settings| settings.changed(given))
    }

    fn change(&self, set: impl FnOnce(&mut Knobs)) -> Result<(), BuildError> {
        let mut given = Knobs::default();
        set(&mut given);
        self.0.change(|settings| settings.changed(&given))
    }
}
