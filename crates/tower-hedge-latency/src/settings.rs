use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::{Budget, BuildError};

use crate::HedgeLayer;
use crate::trigger::Trigger;

/// What can be changed while the layer is in use. One call sees one version of it throughout.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) trigger: Option<Trigger>,
    pub(crate) max_hedges: Option<u32>,
    pub(crate) budget: Budget,
    /// Whether eligible calls deposit into the budget, or another layer's do.
    pub(crate) deposits: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            trigger: None,
            max_hedges: None,
            budget: Budget::unlimited(),
            deposits: true,
        }
    }
}

impl Settings {
    pub(crate) fn validate(&self) -> Result<(), BuildError> {
        let Some(trigger) = &self.trigger else {
            let bound = "set, by one of fixed, delays and fan_out";
            return Err(BuildError::new("trigger", None::<()>, bound));
        };
        trigger.validate(self.max_hedges)?;
        self.budget.validate()
    }

    /// When the 0-based `hedge` is due, as an offset from the call's start.
    pub(crate) fn due(&self, hedge: u32) -> Option<Duration> {
        self.trigger.as_ref()?.due(hedge, self.max_hedges)
    }
}

/// Changes a hedge layer's trigger and budget while it is in use.
///
/// ```
/// use std::time::Duration;
/// use tower_hedge_latency::{Budget, HedgeLayer};
///
/// let hedge_after = |millis| HedgeLayer::builder().fixed(Duration::from_millis(millis));
/// let layer = hedge_after(10).build()?;
/// let handle = layer.handle();
/// handle.retune(&hedge_after(20).build()?);
/// // No hedge any more.
/// handle.retune(&hedge_after(20).budget(Budget::none()).build()?);
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
pub struct HedgeHandle(Arc<ArcSwap<Settings>>);

impl HedgeHandle {
    pub(crate) fn new(settings: &Arc<ArcSwap<Settings>>) -> Self {
        Self(Arc::clone(settings))
    }

    /// Takes over another layer's trigger and budget.
    ///
    /// Every service of this handle's layer follows from its next call on; calls that are under way
    /// end as they began. Rules and observer stay. The budget is then shared with `layer`.
    pub fn retune<P, O>(&self, layer: &HedgeLayer<P, O>) {
        self.0.store(layer.settings.load_full());
    }
}
