use std::time::Duration;

use tower_attempt::layer::{Live, Parts};
use tower_attempt::{BuildError, Generic, Protocol};

use crate::destination::Anywhere;
use crate::losers::Cancel;
use crate::settings::{Config, Settings};
use crate::trigger::Trigger;
use crate::{HedgeLayer, NoObserver};

/// Configures a [`HedgeLayer`].
///
/// The trigger sets the times of hedges: [`percentile`](Self::percentile), [`fixed`](Self::fixed),
/// [`delays`](Self::delays) or [`fan_out`](Self::fan_out).
///
/// Choose the protocol first, with `http` or `grpc`. Call all other setters in any order.
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
///     .hedge_if(|request| request.path() != "/report") // excludes requests; `hedge_unsafe_if` includes more
///     .percentile(0.95)
///     .build()?;
/// # assert_eq!(hedge.handle().quantile(), Some(0.95));
/// # Ok(())
/// # }
/// ```
///
/// # Default
///
/// | setting | default | source |
/// |---|---|---|
/// | trigger | the 95th percentile (q = 0.95), or a higher one if the budget's ratio is above 0 and below 0.05 | *The Tail at Scale* |
/// | `max_hedges` | 1 with `percentile` and `fixed`; `delays` and `fan_out` set the number themselves | |
/// | `min_delay`, `max_delay`, `initial_delay` | 1 ms, none, none | resolution of tokio's timers |
/// | `window` | 10 s, or longer until it has `max(100, 10 ÷ (1 − q))` samples | |
/// | `budget` | `percentile`: starts with 10 tokens and holds at most 100; each successful call that may be hedged adds 1 − q. Other triggers: unlimited, because you choose the times of hedges | *The Tail at Scale* |
/// | `key` | one class for all requests | |
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct HedgeLayerBuilder<P = Generic, O = NoObserver, A = Anywhere, L = Cancel>(
    pub(super) Parts<P, O, (A, L), Config>,
);

impl<P, O, A, L> HedgeLayerBuilder<P, O, A, L> {
    /// The quantile of latency after which the first hedge is due: above 0 and below 1. The layer learns the latency at
    /// this quantile from live calls. The delay before the first hedge is this latency, but at least
    /// [`min_delay`](Self::min_delay) and at most [`max_delay`](Self::max_delay). Hedge k is due after k times this
    /// delay.
    ///
    /// With 0.95 about the slowest 5 % of the calls are hedged. Choose the quantile by the additional load that you can
    /// afford. The default budget usually pays for one hedge of each of these calls. [`build`](Self::build) fails if an
    /// explicit [`budget`](Self::budget) has a ratio below 1 − `quantile` and no tokens per second. The learned latency
    /// usually follows a changing service within about two [windows](Self::window).
    ///
    /// If more than 1 − `quantile` of the calls are slow, the learned delay is usually about as long as a slow call,
    /// and most hedges are too late to win. A [`max_delay`](Self::max_delay) can prevent that.
    ///
    /// # Cost
    ///
    /// Usually one or two clock reads and a few atomic operations per call. At a high rate of calls, the average call
    /// costs less, because only a share of the calls is sampled. Each of at most 256 [keys](Self::key) takes 16 KB of
    /// memory, so about 4 MB at most.
    pub fn percentile(mut self, quantile: f64) -> Self {
        self.0.settings.percentile.quantile = Some(quantile);
        self.trigger("percentile", Trigger::Percentile)
    }

    /// A fixed delay: hedge k is due `k · delay` after the call's start.
    ///
    /// Choose a delay that only the slowest calls exceed, such as the 95th percentile of latency. A shorter delay adds
    /// load, and a longer delay reduces the tail latency less. tokio's timers have a resolution of 1 ms.
    pub fn fixed(self, delay: Duration) -> Self {
        self.trigger("fixed", Trigger::Fixed(delay))
    }

    /// The offsets from the call's start at which hedges are due: 1 to 100 of them, in ascending order.
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Self {
        self.trigger("delays", Trigger::Delays(delays.into_iter().collect()))
    }

    /// The number of attempts to send concurrently, from 2 to 101.
    ///
    /// This multiplies the load on the service by up to `attempts`.
    pub fn fan_out(self, attempts: u32) -> Self {
        self.trigger("fan_out", Trigger::FanOut(attempts))
    }

    /// Maximum number of hedges per call, from 1 to 100. The first attempt does not count. Only the triggers
    /// [`percentile`](Self::percentile) and [`fixed`](Self::fixed) use this setting.
    ///
    /// # Default
    ///
    /// 1.
    pub fn max_hedges(mut self, hedges: u32) -> Self {
        self.0.settings.max_hedges = Some(hedges);
        self
    }

    /// Lower bound on the learned delay before the first hedge.
    ///
    /// # Default
    ///
    /// 1 ms, the resolution of tokio's timers.
    pub fn min_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.min_delay = Some(delay);
        self
    }

    /// Upper bound on the learned delay before the first hedge.
    ///
    /// If the learned latency exceeds this bound, hedges are due for more calls than without the bound. The budget
    /// still limits the hedges that are sent.
    ///
    /// If a layer above has a timeout, set the bound below that timeout by at least the time of a usual response.
    /// Suppose that the quantile is 0.95 and that more than 5 % of the calls reach the timeout. Without a bound, the
    /// learned delay then settles near the timeout. Hedges then have too little time to win, and may be [held
    /// back](crate::SkipReason::HeldBack). [`cancelled_late`](crate::HedgeCounts::cancelled_late) counts the calls that
    /// were dropped after their first hedge was due, for example by that timeout.
    ///
    /// # Default
    ///
    /// No bound.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.max_delay = Some(delay);
        self
    }

    /// The delay before the first hedge while no percentile is learned yet. [`min_delay`](Self::min_delay) and
    /// [`max_delay`](Self::max_delay) bound it, too.
    ///
    /// # Default
    ///
    /// None: the percentile hedges no call until the first [window](Self::window) has enough samples.
    pub fn initial_delay(mut self, delay: Duration) -> Self {
        self.0.settings.percentile.initial_delay = Some(delay);
        self
    }

    /// Duration of a window of samples, above zero. The percentile is computed from the current and the previous
    /// window.
    ///
    /// With few calls a window lasts longer, until it has `max(100, 10 ÷ (1 − q))` samples, where q is the quantile.
    ///
    /// # Default
    ///
    /// 10 s.
    pub fn window(mut self, window: Duration) -> Self {
        self.0.settings.percentile.window = Some(window);
        self
    }

    /// Whether a retryable failure of an attempt sends the next hedge immediately.
    ///
    /// A failure that names a wait, for example by a `Retry-After` or a gRPC pushback, sends no hedge before that wait
    /// has passed. If such a wait remains and no attempt is in flight, the call ends. A negative or malformed pushback
    /// forbids all further hedges. If all attempts fail and every failure is retryable, the caller receives the first
    /// attempt's failure.
    ///
    /// Use this setting for failures that arrive early and pass quickly, where the backoff of a retry layer would be
    /// too long. The hedge takes a token from the budget like any other hedge. While a percentile has neither a learned
    /// delay nor an [`initial_delay`](Self::initial_delay), no hedge is sent.
    ///
    /// If a due hedge is still waiting for its service to become ready, the failure adds no second hedge. That service
    /// is polled again, because the failed attempt may have released a concurrency permit. If the service is still not
    /// ready and no attempt is in flight, the call ends.
    ///
    /// # Default
    ///
    /// `false`.
    ///
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
    /// let layer = HedgeLayer::builder().fixed(Duration::from_secs(1)).hedge_on_failure(true).build()?;
    ///
    /// let attempts = AtomicU32::new(0);
    /// let service = layer.layer(service_fn(|_: ()| {
    ///     let first = attempts.fetch_add(1, Relaxed) == 0;
    ///     async move { if first { Err("busy") } else { Ok("done") } }
    /// }));
    /// let start = Instant::now();
    /// assert_eq!(service.oneshot(()).await, Ok("done"));
    /// assert_eq!(start.elapsed(), Duration::ZERO); // the hedge did not wait for its delay
    /// # Ok(())
    /// # }
    /// ```
    pub fn hedge_on_failure(mut self, on_failure: bool) -> Self {
        self.0.settings.on_failure = Some(on_failure);
        self
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Returns an error if a setting is out of its range. The error names the setting, its value and its range.
    ///
    /// Returns an error if two settings contradict each other: two triggers, two budgets, a `max_delay` below the
    /// `min_delay`, or a percentile that the budget cannot pay for. `max_hedges`, `min_delay`, `max_delay`,
    /// `initial_delay`, `window` and `key` are errors with a trigger that does not use them. gRPC without any method
    /// declared idempotent is an error, too.
    pub fn build(self) -> Result<HedgeLayer<P, O, A, L>, BuildError>
    where
        P: Protocol,
    {
        self.0.settings.validate(&self.0.settings)?;
        self.0.protocol.validate_hedging()?;
        Ok(self.finish())
    }

    /// Builds a layer from valid settings.
    pub(super) fn finish(mut self) -> HedgeLayer<P, O, A, L> {
        self.0.settings.percentile.has_key = false;
        HedgeLayer(self.0.settings(|config| Live::new(Settings::new(config))))
    }

    fn trigger(mut self, setter: &'static str, trigger: Trigger) -> Self {
        self.0.settings.trigger.set(setter, trigger);
        self
    }
}
