use std::sync::Arc;
use std::time::Duration;

use tower_attempt::BuildError;
use tower_attempt::layer::Live;

use crate::settings::Settings;
use crate::trigger::Trigger;

/// Watches a hedge layer, and changes the layer's settings while the layer is in use.
///
/// Every service of the layer follows a change from its next call on. Calls in flight end with the settings
/// that they began with.
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
pub struct HedgeHandle(pub(crate) Live<Settings>);

impl HedgeHandle {
    /// Returns the quantile of the trigger [`percentile`](crate::HedgeLayerBuilder::percentile), or `None` if the layer
    /// has another trigger.
    ///
    /// If the budget has a ratio above 0 and below 0.05, the default quantile of 0.95 rises to 1 − ratio. A quantile
    /// that you set does not change.
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
        let settings = self.0.load();
        settings.learns().then(|| settings.target.quantile())
    }

    /// Returns the trigger's delay from a call's start to the first hedge. If the trigger is a percentile that is not
    /// learned yet, this is the [`initial_delay`](crate::HedgeLayerBuilder::initial_delay) within `min_delay` and
    /// `max_delay`, or `None` if no initial delay is set.
    ///
    /// With [`key`](crate::HedgeLayerBuilder::key) and a percentile, this is the delay of requests without a key, and
    /// of requests with a key beyond the first 256.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let settings = self.0.load();
        let learned = settings.learned(&settings.latencies.classes.rest);
        settings.due(0, learned)
    }

    /// Returns the name and the delay of each [`key`](crate::HedgeLayerBuilder::key) for which the layer learns a
    /// separate percentile, sorted by name. These are at most 256 keys. Until the percentile of a key is learned, its
    /// delay is the [`initial_delay`](crate::HedgeLayerBuilder::initial_delay) within `min_delay` and `max_delay`, or
    /// `None` if no initial delay is set. The list is empty if the trigger is not a percentile.
    ///
    /// # Cost
    ///
    /// Allocates a list of up to 256 keys.
    #[must_use]
    pub fn delays_by_key(&self) -> Vec<(Arc<str>, Option<Duration>)> {
        let settings = self.0.load();
        let delays = |bounds| settings.latencies.classes.delays(bounds);
        settings.bounds.as_ref().map(delays).unwrap_or_default()
    }

    /// Sets the trigger to a percentile. The percentile starts with the latencies that the layer learned earlier. While
    /// the trigger is not a percentile, the layer learns no latencies. If the layer was given no budget, its budget
    /// becomes the [default budget](crate::HedgeLayerBuilder#default) of a percentile.
    ///
    /// # Errors
    ///
    /// Returns an error unless `quantile` is above 0 and below 1. Returns an error if a given budget has a ratio below
    /// 1 − `quantile` and no tokens per second.
    pub fn set_percentile(&self, quantile: f64) -> Result<(), BuildError> {
        self.change(|given| {
            given.percentile.quantile = Some(quantile);
            given.trigger.set("percentile", Trigger::Percentile);
        })
    }

    /// Sets the trigger to a fixed delay. If the layer was given no budget, its budget becomes unlimited.
    pub fn set_fixed(&self, delay: Duration) {
        // Cannot fail: every delay is valid, and no earlier setting contradicts it.
        let _ = self.change(|given| given.trigger.set("fixed", Trigger::Fixed(delay)));
    }

    /// Sets the maximum number of hedges per call.
    ///
    /// # Errors
    ///
    /// Returns an error if `hedges` is not from 1 to 100, or if the trigger is
    /// [`delays`](crate::HedgeLayerBuilder::delays) or [`fan_out`](crate::HedgeLayerBuilder::fan_out).
    pub fn set_max_hedges(&self, hedges: u32) -> Result<(), BuildError> {
        self.change(|given| given.max_hedges = Some(hedges))
    }

    /// Sets the lower bound on the learned or initial delay before the first hedge.
    ///
    /// # Errors
    ///
    /// Returns an error if `delay` is above the upper bound, or if the trigger is not a percentile.
    pub fn set_min_delay(&self, delay: Duration) -> Result<(), BuildError> {
        self.change(|given| given.percentile.min_delay = Some(delay))
    }

    /// Sets the upper bound on the learned or initial delay before the first hedge.
    ///
    /// # Errors
    ///
    /// Returns an error if `delay` is below the lower bound, or if the trigger is not a percentile.
    pub fn set_max_delay(&self, delay: Duration) -> Result<(), BuildError> {
        self.change(|given| given.percentile.max_delay = Some(delay))
    }
}
