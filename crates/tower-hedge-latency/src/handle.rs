use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::BuildError;

use crate::settings::{Knobs, Settings};
use crate::trigger::Trigger;
use crate::{HedgeCounts, HedgeLayer, Mode};

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
/// handle.retune(&HedgeLayer::builder().fixed(Duration::from_millis(20)).build()?)?;
/// assert_eq!(handle.delay(), Some(Duration::from_millis(20)));
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HedgeHandle(Arc<ArcSwap<Settings>>);

impl HedgeHandle {
    pub(crate) fn new(settings: &Arc<ArcSwap<Settings>>) -> Self {
        Self(Arc::clone(settings))
    }

    /// What the layer's services have done so far.
    #[must_use]
    pub fn counts(&self) -> HedgeCounts {
        self.0.load().state.counters.read()
    }

    /// When the first hedge of a call is due, as an offset from its start; `None` while too little is
    /// known for a percentile, and for `delays` and `fan_out` the first one.
    ///
    /// With [`key`](crate::HedgeLayerBuilder::key) this is for the calls beyond the 256th key.
    #[must_use]
    pub fn delay(&self) -> Option<Duration> {
        let settings = self.0.load();
        let learned = settings.learned(&settings.state.classes.rest);
        settings.due(0, learned)
    }

    /// The delay that is learned for each [`key`](crate::HedgeLayerBuilder::key), by the keys' names;
    /// empty if the trigger is not a percentile.
    ///
    /// # Cost
    ///
    /// A list of up to 256 keys.
    #[must_use]
    pub fn delays_by_key(&self) -> Vec<(Arc<str>, Option<Duration>)> {
        let settings = self.0.load();
        match &settings.tuning.trigger {
            Trigger::Percentile(percentile) => settings.state.classes.delays(percentile),
            _ => Vec::new(),
        }
    }

    /// What the layer does at present.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.0.load().tuning.mode
    }

    /// Switches hedging on or off, or lets the layer only count, from each service's next call on.
    pub fn set_mode(&self, mode: Mode) {
        let given = Knobs {
            mode: Some(mode),
            ..Knobs::default()
        };
        // A mode contradicts no other setting.
        let _ = Settings::change(&self.0, &given);
    }

    /// Takes over the settings that were given to the builder of another layer: mode, trigger, number of hedges,
    /// budget, and whether it [hedges on failure](crate::HedgeLayerBuilder::hedge_on_failure). The others stay.
    ///
    /// Every service of this handle's layer follows from its next call on; calls that are under way
    /// end as they began. Rules, observer, counts and what was learned stay: another percentile is read from it
    /// immediately. A budget is then shared with `layer`.
    ///
    /// # Errors
    ///
    /// Returns an error and changes nothing if a setting of `layer` contradicts one that stays: a percentile and
    /// a budget that cannot pay for it, or a `max_delay` below the `min_delay`.
    pub fn retune<P, O, X>(&self, layer: &HedgeLayer<P, O, X>) -> Result<(), BuildError> {
        let given = layer.settings.load().knobs.clone();
        Settings::change(&self.0, &given)
    }
}
