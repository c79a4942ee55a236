mod limits;
mod rules;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
#[cfg(feature = "http")]
use tower_attempt::Http;
use tower_attempt::{Budget, BuildError, Generic, Protocol};
use tower_layer::Layer;

use crate::settings::{Knobs, Settings};
use crate::{Backoff, Mode, NoObserver, NoTimeLimit, Observed, Observer, Retry, RetryHandle};

/// Puts [`Retry`] around services.
///
/// `P` is the protocol: [`Http`](crate::Http), `Grpc` or [`Generic`]; `O` is the observer, and `T` the kind
/// of time limits. Every service that this layer or a clone of it makes
/// shares the budget, the jitter's seed and the settings.
pub struct RetryLayer<P = Generic, O = NoObserver, T = NoTimeLimit> {
    protocol: P,
    observer: O,
    limit: T,
    pub(crate) settings: Arc<ArcSwap<Settings>>,
}

#[cfg(feature = "http")]
impl RetryLayer<Http> {
    /// Retries HTTP requests that are safe to resend, with the defaults of [`RetryLayerBuilder`] and the
    /// rules of [`Http`].
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::http();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn http() -> Self {
        RetryLayer::builder().http().finish()
    }
}

#[cfg(feature = "grpc")]
impl RetryLayer<Grpc> {
    /// Retries gRPC calls as gRFC A6 has it, with the defaults of [`RetryLayerBuilder`] and the rules of
    /// [`Grpc`]: proof that the server did not process the call, and pushback. Declare methods
    /// [idempotent](RetryLayerBuilder::idempotent_methods) to retry UNAVAILABLE, too.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::grpc();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn grpc() -> Self {
        RetryLayer::builder().grpc().finish()
    }
}

impl RetryLayer {
    /// A layer for any service whose requests are `Clone`; it retries every `Err` and no `Ok`.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder {
            protocol: Generic::default(),
            observer: NoObserver,
            limit: NoTimeLimit,
            knobs: Knobs::default(),
        }
    }
}

impl<P, O, T> RetryLayer<P, O, T> {
    /// Changes the layer's numbers while it is in use.
    #[must_use]
    pub fn handle(&self) -> RetryHandle {
        RetryHandle::new(&self.settings)
    }
}

impl<P: Clone, O: Clone, T: Clone> Clone for RetryLayer<P, O, T> {
    fn clone(&self) -> Self {
        Self {
            protocol: self.protocol.clone(),
            observer: self.observer.clone(),
            limit: self.limit.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, P: Clone, O: Clone, T: Clone> Layer<S> for RetryLayer<P, O, T> {
    type Service = Retry<S, P, O, T>;

    fn layer(&self, inner: S) -> Self::Service {
        let (protocol, observer) = (self.protocol.clone(), self.observer.clone());
        let (limit, settings) = (self.limit.clone(), Arc::clone(&self.settings));
        Retry::new(inner, protocol, observer, limit, settings)
    }
}

impl<P, O, T> fmt::Debug for RetryLayer<P, O, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RetryLayer")
            .field("settings", &self.settings.load())
            .finish_non_exhaustive()
    }
}

/// Configures a [`RetryLayer`].
///
/// # Default
///
/// | setting | default | source |
/// |---|---|---|
/// | `max_attempts` | 3 in all | AWS SDKs, SRE book |
/// | `backoff` | 100 ms · 2ⁿ up to 20 s, full jitter; throttled answers start from 1 s | AWS SDKs |
/// | `budget` | 20 % of successful calls + 10 per second, burst 100 | Finagle, linkerd2 |
/// | `max_hint` | 60 s | |
/// | `retry_until`, `attempt_timeout`, `deadline` | no limit; a request's own [`Deadline`](crate::Deadline) is honoured | |
/// | `replay_limit` | 64 KiB | linkerd2 |
///
/// ```
/// use std::time::Duration;
/// use tower_jitter_retry::{Backoff, Budget, Jitter, RetryLayer};
///
/// let layer = RetryLayer::builder()
///     .max_attempts(4)
///     .backoff(
///         Backoff::exponential(Duration::from_millis(50), Duration::from_secs(20))
///             .jitter(Jitter::Decorrelated),
///     )
///     .budget(Budget::ratio(0.2))
///     .build()?;
/// # let _ = layer;
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder<P = Generic, O = NoObserver, T = NoTimeLimit> {
    protocol: P,
    observer: O,
    limit: T,
    knobs: Knobs,
}

impl<P, O, T> RetryLayerBuilder<P, O, T> {
    /// The name of the layer, as observers report it. Empty means that the layer has no name.
    ///
    /// # Default
    ///
    /// Empty.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder().name("payments").build()?;
    /// assert!(format!("{layer:?}").contains("payments"));
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn name(mut self, name: impl Into<Arc<str>>) -> Self {
        self.knobs.name = name.into();
        self
    }

    /// How often a request is sent at most, the first time included; at least 1.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.knobs.max_attempts = attempts;
        self
    }

    /// How long to wait before each retry.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.knobs.backoff = backoff;
        self
    }

    /// The allowance that retries draw on and successful calls pay into.
    ///
    /// For the outermost layer that uses this budget; layers below take a clone of it with
    /// [`shared_budget`](Self::shared_budget).
    pub fn budget(mut self, budget: Budget) -> Self {
        self.knobs.budget = budget;
        self.knobs.has_own_budget = true;
        self.knobs.deposits = true;
        self
    }

    /// An allowance that retries draw on, and that a layer above pays into.
    pub fn shared_budget(mut self, budget: Budget) -> Self {
        self.knobs.budget = budget;
        self.knobs.has_own_budget = true;
        self.knobs.deposits = false;
        self
    }

    /// The longest server hint to obey. When the server asks for more, its answer is returned.
    pub fn max_hint(mut self, longest: Duration) -> Self {
        self.knobs.max_hint = longest;
        self
    }

    /// How long after a call's start further attempts may go out. A failure whose repeat would come
    /// later is returned at once, without a wait.
    ///
    /// Ends nothing that is in flight, nor the wait for the service to become ready for an attempt that
    /// was decided on in time: there is no answer to give by then. For that, see
    /// [`deadline`](Self::deadline). A [`Deadline`](crate::Deadline) in an HTTP request's extensions wins
    /// over it.
    pub fn retry_until(mut self, limit: Duration) -> Self {
        self.knobs.retry_until = Some(limit);
        self
    }

    /// Whether the layer repeats, only counts what it would repeat, or does nothing.
    ///
    /// # Default
    ///
    /// [`Mode::On`]. A [handle](RetryLayer::handle) changes it while the layer is in use.
    pub fn mode(mut self, mode: Mode) -> Self {
        self.knobs.mode = mode;
        self
    }

    /// The receiver of the layer's events. An `Arc` of an observer is an observer, too.
    ///
    /// # Default
    ///
    /// [`NoObserver`], which costs nothing.
    pub fn observer(self, observer: impl Observer) -> RetryLayerBuilder<P, Observed, T> {
        RetryLayerBuilder {
            protocol: self.protocol,
            observer: Observed::new(observer),
            limit: self.limit,
            knobs: self.knobs,
        }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range, with its value and its range; and a budget besides
    /// [`budget_by`](RetryLayerBuilder::budget_by).
    pub fn build(self) -> Result<RetryLayer<P, O, T>, BuildError>
    where
        P: Protocol,
    {
        self.knobs.validate()?;
        self.protocol.validate()?;
        Ok(self.finish())
    }

    fn finish(self) -> RetryLayer<P, O, T> {
        RetryLayer {
            protocol: self.protocol,
            observer: self.observer,
            limit: self.limit,
            settings: Arc::new(ArcSwap::from_pointee(Settings::new(self.knobs))),
        }
    }

    fn protocol<N>(self, protocol: N) -> RetryLayerBuilder<N, O, T> {
        RetryLayerBuilder {
            protocol,
            observer: self.observer,
            limit: self.limit,
            knobs: self.knobs,
        }
    }
}
