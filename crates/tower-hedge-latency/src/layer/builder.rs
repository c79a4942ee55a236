use std::time::Duration;

use tower_attempt::layer::{Live, Parts};
use tower_attempt::{BuildError, Generic, Protocol};

use crate::elsewhere::Anywhere;
use crate::losers::Cancel;
use crate::options::Options;
use crate::settings::{Knobs, Settings};
use crate::trigger::Trigger;
use crate::{HedgeLayer, NoObserver};

/// Configures a [`HedgeLayer`].
///
/// One of [`percentile`](Self::percentile), [`fixed`](Self::fixed), [`delays`](Self::delays) and
/// [`fan_out`](Self::fan_out) says when hedges are due.
///
/// # Default
///
/// | setting | default | source |
/// |---|---|---|
/// | trigger | the 95th percentile, or a higher one if the budget pays for less | *The Tail at Scale* |
/// | `max_hedges` | 1 with `percentile` and `fixed`; `delays` and `fan_out` say it themselves | |
/// | `min_delay`, `max_delay`, `initial_delay` | 1 ms, none, none | tokio's grain |
/// | `window` | 10 s, and at least `max(100, 10 ÷ (1 − q))` samples | |
/// | `budget` | `percentile`: 1 − q of the eligible calls that succeed, 10 at first, a burst of 100; else unlimited, since a fixed trigger is the caller's own decision | *The Tail at Scale* |
/// | `key` | one class | |
///
/// The protocol comes first. All other setters come in any order, and none of the rules changes the layer's type.
///
/// ```
/// use tower_hedge_latency::{Budget, HedgeLayer, Http};
/// # fn main() -> Result<(), tower_hedge_latency::BuildError> {
/// # let budget = Budget::default();
///
/// let hedge: HedgeLayer<Http> = HedgeLayer::builder()
///     .http()
///     .name("payments")
///     .shared_budget(budget)
///     .hedge_if(|request| request.path() != "/report")              // narrows; `hedge_unsafe_if` widens
///     .percentile(0.95)
///     .build()?;
/// # assert_eq!(hedge.handle().quantile(), Some(0.95));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct HedgeLayerBuilder<P = Generic, O = NoObserver, A = Anywhere, L = Cancel>(
    pub(super) Parts<P, O, Options<A, L>, Knobs>,
);

impl<P, O, A, L> HedgeLayerBuilder<P, O, A, L> {
    /// Hedge k goes out at k times the time that a share `quantile` of the calls takes at most, learned
    /// from the calls themselves.
    ///
    /// `quantile` is above 0 and below 1: 0.95 hedges the slowest 5 % of the calls. It follows a
    /// service that changes within about two [windows](Self::window). Choose it by the load that you
    /// can afford. The default budget pays for it, and a [`budget`](Self::budget) that cannot is an error of
    /// [`build`](Self::build). It can't help where the
    /// service has a slow mode that more than 1 − `quantile` of the calls fall into: then the
    /// trigger lies inside the slow mode, and a hedge comes too late to win.
    ///
    /// # Cost
    ///
    /// Two readings of the clock and three or four atomic operations per call, less with very many calls,
    /// of which only a share is looked at; 16 KB per [key](Self::key), so 4 MB at most.
    pub fn percentile(mut self, quantile: f64) -> Self {
        self.0.settings.percentile.quantile = Some(quantile);
        self.trigger("percentile", Trigger::Percentile)
    }

    /// Hedge k goes out `k · delay` after the call's start.
    ///
    /// Choose a delay that only the slowest calls exceed, such as the 95th percentile: an earlier
    /// hedge costs more load, a later one leaves more of the tail. tokio's timer has a grain of
    /// 1 ms.
    pub fn fixed(self, delay: Duration) -> Self {
        self.trigger("fixed", Trigger::Fixed(delay))
    }

    /// Hedge k goes out at the k-th of these offsets from the call's start: at most 100, in ascending
    /// order.
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Self {
        self.trigger("delays", Trigger::Delays(delays.into_iter().collect()))
    }

    /// So many attempts in all go out at once; from 2 to 101.
    ///
    /// Multiplies the load by this number.
    pub fn fan_out(self, attempts: u32) -> Self {
        self.trigger("fan_out", Trigger::FanOut(attempts))
    }

    /// How many hedges a call may have with [`percentile`](Self::percentile) and
    /// [`fixed`](Self::fixed), the first attempt not counted; from 1 to 100.
    pub fn max_hedges(mut self, hedges: u32) -> Self {
        self.0.settings.max_hedges = Some(hedges);
        self
    }

    /// The earliest that a percentile lets a hedge go out, as an offset from the call's start.
    pub fn min_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.min_delay = Some(delay);
        self
    }

    /// The latest that a percentile lets the first hedge go out, as an offset from the call's start.
    ///
    /// When the service gets slower than this, more calls are hedged than the percentile says, as far
    /// as the budget goes.
    ///
    /// Set it below every timeout above this layer, by at least the time that a response usually takes. The
    /// latency of a call that its caller drops is unknown, so a percentile that more than 1 − q of the calls
    /// would exceed by then settles right below the timeout, where no hedge can win, and most are
    /// [held back](crate::SkipReason::HeldBack). Count
    /// [`cancelled_late`](crate::HedgeCounts::cancelled_late) to detect this.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.max_delay = Some(delay);
        self
    }

    /// When the first hedge goes out while too little is known for a percentile.
    ///
    /// # Default
    ///
    /// None: calls are not hedged until there are [samples enough](Self::window).
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.initial_delay = Some(delay);
        self
    }

    /// For how long a percentile remembers answers: those of the current window and of the one before
    /// it count.
    ///
    /// A window is also not closed before it has `max(100, 10 ÷ (1 − q))` samples, so that a service
    /// with few calls has a longer memory.
    pub fn window(mut self, window: Duration) -> Self {
        self.0.settings.percentile.window = Some(window);
        self
    }

    /// Whether the next hedge also goes out when an attempt fails, without waiting for its time.
    ///
    /// For services whose failures are quick and pass quickly, where a retry layer above would wait
    /// first. The hedge costs a token like any other. Only failures that a retry would repeat count. A hedge that
    /// is due already and waits for a permit goes out if the failed attempt has held that permit; if its service
    /// is still not ready, the failure is returned.
    ///
    /// # Default
    ///
    /// `false`.
    pub fn hedge_on_failure(mut self, on_failure: bool) -> Self {
        self.0.settings.on_failure = Some(on_failure);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range, with its value and its range, or that contradicts
    /// another one: two triggers, a percentile that the budget cannot pay for, settings that a trigger does not
    /// use, and gRPC without idempotent methods.
    pub fn build(self) -> Result<HedgeLayer<P, O, A, L>, BuildError>
    where
        P: Protocol,
    {
        self.0.settings.validate()?;
        self.0.protocol.validate_hedging()?;
        Ok(self.finish())
    }

    /// The layer, if the settings are known to be valid.
    pub(super) fn finish(self) -> HedgeLayer<P, O, A, L> {
        HedgeLayer(self.0.settings(|knobs| Live::new(Settings::new(knobs))))
    }

    fn trigger(mut self, setter: &'static str, trigger: Trigger) -> Self {
        self.0.settings.trigger.set(setter, trigger);
        self
    }
}
