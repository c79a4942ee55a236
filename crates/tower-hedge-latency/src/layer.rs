use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::{Attempt, Budget, BuildError, ByClone, Plain, Rules, Verdict};
#[cfg(feature = "http")]
use tower_attempt::{ByBody, Http, HttpClassify, HttpOutcome};
use tower_layer::Layer;

use crate::settings::Settings;
use crate::trigger::Trigger;
use crate::{Hedge, HedgeHandle, NoObserver, Observer};

/// Puts [`Hedge`] around services.
///
/// `P` is what the layer knows of the protocol: [`Http`](crate::Http) or [`Plain`]. Every service
/// that this layer or a clone of it makes shares the budget and the settings.
pub struct HedgeLayer<P = Plain, O = NoObserver> {
    rules: P,
    observer: O,
    pub(crate) settings: Arc<ArcSwap<Settings>>,
}

impl HedgeLayer {
    /// A layer for any service whose requests are `Clone`; every request may be hedged.
    pub fn builder() -> HedgeLayerBuilder {
        HedgeLayerBuilder {
            rules: Plain::default(),
            observer: NoObserver,
            settings: Settings::default(),
        }
    }
}

impl<P, O> HedgeLayer<P, O> {
    /// Changes the layer's trigger and budget while it is in use.
    #[must_use]
    pub fn handle(&self) -> HedgeHandle {
        HedgeHandle::new(&self.settings)
    }
}

impl<P: Clone, O: Clone> Clone for HedgeLayer<P, O> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, P: Clone, O: Clone> Layer<S> for HedgeLayer<P, O> {
    type Service = Hedge<S, P, O>;

    fn layer(&self, inner: S) -> Self::Service {
        let (rules, observer) = (self.rules.clone(), self.observer.clone());
        Hedge::new(inner, rules, observer, Arc::clone(&self.settings))
    }
}

impl<P, O> fmt::Debug for HedgeLayer<P, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgeLayer")
            .field("settings", &self.settings.load())
            .finish_non_exhaustive()
    }
}

/// Configures a [`HedgeLayer`].
///
/// One of [`fixed`](Self::fixed), [`delays`](Self::delays) and [`fan_out`](Self::fan_out) says when
/// hedges are due; the last one given counts.
///
/// # Default
///
/// | setting | default |
/// |---|---|
/// | `max_hedges` | 1 with `fixed`; `delays` and `fan_out` say it themselves |
/// | `budget` | unlimited: a fixed trigger is the caller's own decision |
///
/// ```
/// use std::time::Duration;
/// use tower_hedge_latency::{Budget, HedgeLayer};
///
/// // The Tail at Scale's experiment, with at most 5 % extra load.
/// let layer = HedgeLayer::builder()
///     .fixed(Duration::from_millis(10))
///     .budget(Budget::ratio(0.05))
///     .http()
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, tower_hedge_latency::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct HedgeLayerBuilder<P = Plain, O = NoObserver> {
    rules: P,
    observer: O,
    settings: Settings,
}

impl<P, O> HedgeLayerBuilder<P, O> {
    /// Hedge k goes out `k · delay` after the call's start.
    ///
    /// Choose a delay that only the slowest calls exceed, such as the 95th percentile: an earlier
    /// hedge costs more load, a later one leaves more of the tail. tokio's timer has a grain of
    /// 1 ms.
    pub fn fixed(self, delay: Duration) -> Self {
        self.trigger(Trigger::Fixed(delay))
    }

    /// Hedge k goes out at the k-th of these offsets from the call's start: at most 100, in ascending
    /// order.
    pub fn delays(self, delays: impl IntoIterator<Item = Duration>) -> Self {
        self.trigger(Trigger::Delays(delays.into_iter().collect()))
    }

    /// So many attempts in all go out at once; from 2 to 101.
    ///
    /// Multiplies the load by this number.
    pub fn fan_out(self, attempts: u32) -> Self {
        self.trigger(Trigger::FanOut(attempts))
    }

    /// How many hedges a call may have with [`fixed`](Self::fixed), the first attempt not counted;
    /// from 1 to 100.
    pub fn max_hedges(mut self, hedges: u32) -> Self {
        self.settings.max_hedges = Some(hedges);
        self
    }

    /// The allowance that hedges draw on and eligible calls pay into.
    ///
    /// For the outermost layer that uses this budget; layers below take a clone of it with
    /// [`shared_budget`](Self::shared_budget).
    pub fn budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self.settings.deposits = true;
        self
    }

    /// An allowance that hedges draw on, and that a layer above pays into.
    pub fn shared_budget(mut self, budget: Budget) -> Self {
        self.settings.budget = budget;
        self.settings.deposits = false;
        self
    }

    /// Tells `observer` what the layer does.
    pub fn observer<T: Observer>(self, observer: T) -> HedgeLayerBuilder<P, T> {
        HedgeLayerBuilder {
            rules: self.rules,
            observer,
            settings: self.settings,
        }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range, with its value and its range; also when
    /// nothing says when hedges are due.
    pub fn build(self) -> Result<HedgeLayer<P, O>, BuildError> {
        self.settings.validate()?;
        Ok(HedgeLayer {
            rules: self.rules,
            observer: self.observer,
            settings: Arc::new(ArcSwap::from_pointee(self.settings)),
        })
    }

    fn trigger(mut self, trigger: Trigger) -> Self {
        self.settings.trigger = Some(trigger);
        self
    }

    fn rules<T>(self, rules: T) -> HedgeLayerBuilder<T, O> {
        HedgeLayerBuilder {
            rules,
            observer: self.observer,
            settings: self.settings,
        }
    }
}

impl<O> HedgeLayerBuilder<Plain, O> {
    /// Goes by the rules of HTTP: only idempotent requests are hedged, and an answer that a retry
    /// would repeat, such as a 503 or a 429, does not win. See [`HttpClassify`](crate::HttpClassify).
    #[cfg(feature = "http")]
    pub fn http(self) -> HedgeLayerBuilder<Http, O> {
        self.rules(Http::default())
    }

    /// Judges outcomes, and which requests may be hedged, with a [`Classify`](crate::Classify) of
    /// your own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_hedge_latency::{Attempt, Classify, HedgeLayer, Verdict};
    ///
    /// /// Hedges small requests only.
    /// #[derive(Clone)]
    /// struct Small;
    ///
    /// impl<Res, E> Classify<String, Res, E> for Small {
    ///     type Context = usize;
    ///
    ///     fn context(&self, request: &String) -> usize {
    ///         request.len()
    ///     }
    ///
    ///     fn may_hedge(&self, length: &usize) -> bool {
    ///         *length < 1024
    ///     }
    ///
    ///     fn classify(&self, _: &usize, _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
    ///         match outcome {
    ///             Ok(_) => Verdict::Success,
    ///             Err(_) => Verdict::transient(),
    ///         }
    ///     }
    /// }
    ///
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(10))
    ///     .classify(Small)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn classify<C>(self, classify: C) -> HedgeLayerBuilder<Rules<C, ByClone>, O> {
        let replays = ByClone;
        self.rules(Rules { classify, replays })
    }

    /// Judges outcomes with a closure: what it calls a retry does not win while another attempt is
    /// in flight.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_hedge_latency::{HedgeLayer, Verdict};
    ///
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(10))
    ///     .classify_fn(|outcome: &Result<String, std::io::Error>, _| match outcome {
    ///         Ok(answer) if answer == "overloaded" => Verdict::throttled(),
    ///         Ok(_) => Verdict::Success,
    ///         Err(_) => Verdict::transient(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn classify_fn<F, Res, E>(self, classify: F) -> HedgeLayerBuilder<Rules<F, ByClone>, O>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify(classify)
    }
}

#[cfg(feature = "http")]
impl<C, O> HedgeLayerBuilder<Rules<C, ByBody>, O> {
    /// How much of a request's body is recorded while it streams, in bytes, so that the request can
    /// be sent again. A longer body is sent once. Bodies in memory are shared and have no limit.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each request that is in flight may take so much.
    pub fn replay_limit(self, bytes: usize) -> Self {
        let classify = self.rules.classify;
        let replays = ByBody::with_limit(bytes);
        HedgeLayerBuilder {
            rules: Rules { classify, replays },
            observer: self.observer,
            settings: self.settings,
        }
    }
}

#[cfg(feature = "http")]
impl<O> HedgeLayerBuilder<Http, O> {
    /// Judges outcomes, and which requests may be repeated or hedged, with a
    /// [`Classify`](crate::Classify) of your own.
    pub fn classify<C>(self, classify: C) -> HedgeLayerBuilder<Rules<C, ByBody>, O> {
        let replays = self.rules.replays;
        self.rules(Rules { classify, replays })
    }

    /// Gives a closure the last word on outcomes; it sees what the standard rules say.
    pub fn classify_fn<F>(self, classify: F) -> HedgeLayerBuilder<Rules<HttpClassify<F>, ByBody>, O>
    where
        F: Fn(HttpOutcome<'_>) -> Verdict,
    {
        self.classify(HttpClassify::default().last_word(classify))
    }
}
