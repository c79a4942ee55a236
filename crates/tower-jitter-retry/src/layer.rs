use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::{Attempt, Budget, BuildError, ByClone, CustomBackoff, Plain, Rules, Verdict};
#[cfg(feature = "http")]
use tower_attempt::{ByBody, Http, HttpClassify, HttpOutcome};
use tower_layer::Layer;

use crate::settings::{Knobs, Settings};
use crate::{Backoff, NoObserver, Observer, Retry, RetryHandle};

/// Puts [`Retry`] around services.
///
/// `P` is what the layer knows of the protocol: [`Http`](crate::Http) or [`Plain`]. Every service
/// that this layer or a clone of it makes shares the budget, the jitter's seed and the settings.
pub struct RetryLayer<P = Plain, O = NoObserver> {
    rules: P,
    observer: O,
    pub(crate) settings: Arc<ArcSwap<Settings>>,
}

#[cfg(feature = "http")]
impl RetryLayer<Http> {
    /// Retries over HTTP what is safe to repeat, with the defaults of [`RetryLayerBuilder`] and the
    /// rules of [`HttpClassify`](crate::HttpClassify).
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

impl RetryLayer {
    /// A layer for any service whose requests are `Clone`; it retries every `Err` and no `Ok`.
    pub fn builder() -> RetryLayerBuilder {
        RetryLayerBuilder {
            rules: Plain::default(),
            observer: NoObserver,
            knobs: Knobs::default(),
        }
    }
}

impl<P, O> RetryLayer<P, O> {
    /// Changes the layer's numbers while it is in use.
    #[must_use]
    pub fn handle(&self) -> RetryHandle {
        RetryHandle::new(&self.settings)
    }
}

impl<P: Clone, O: Clone> Clone for RetryLayer<P, O> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, P: Clone, O: Clone> Layer<S> for RetryLayer<P, O> {
    type Service = Retry<S, P, O>;

    fn layer(&self, inner: S) -> Self::Service {
        let (rules, observer) = (self.rules.clone(), self.observer.clone());
        Retry::new(inner, rules, observer, Arc::clone(&self.settings))
    }
}

impl<P, O> fmt::Debug for RetryLayer<P, O> {
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
/// | `retry_until` | no limit; a request's own [`Deadline`](crate::Deadline) is honoured | |
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
pub struct RetryLayerBuilder<P = Plain, O = NoObserver> {
    rules: P,
    observer: O,
    knobs: Knobs,
}

impl<P, O> RetryLayerBuilder<P, O> {
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
        self.knobs.deposits = true;
        self
    }

    /// An allowance that retries draw on, and that a layer above pays into.
    pub fn shared_budget(mut self, budget: Budget) -> Self {
        self.knobs.budget = budget;
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
    /// Ends nothing that is in flight; for that, put a timeout above or below. A
    /// [`Deadline`](crate::Deadline) in an HTTP request's extensions wins over it.
    pub fn retry_until(mut self, limit: Duration) -> Self {
        self.knobs.retry_until = Some(limit);
        self
    }

    /// Tells `observer` what the layer does.
    pub fn observer<T: Observer>(self, observer: T) -> RetryLayerBuilder<P, T> {
        RetryLayerBuilder {
            rules: self.rules,
            observer,
            knobs: self.knobs,
        }
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range, with its value and its range.
    pub fn build(self) -> Result<RetryLayer<P, O>, BuildError> {
        self.knobs.validate()?;
        Ok(self.finish())
    }

    fn finish(self) -> RetryLayer<P, O> {
        RetryLayer {
            rules: self.rules,
            observer: self.observer,
            settings: Arc::new(ArcSwap::from_pointee(Settings::new(self.knobs))),
        }
    }

    fn rules<T>(self, rules: T) -> RetryLayerBuilder<T, O> {
        RetryLayerBuilder {
            rules,
            observer: self.observer,
            knobs: self.knobs,
        }
    }
}

impl<O> RetryLayerBuilder<Plain, O> {
    /// Goes by the rules of HTTP; see [`HttpClassify`](crate::HttpClassify).
    #[cfg(feature = "http")]
    pub fn http(self) -> RetryLayerBuilder<Http, O> {
        self.rules(Http::default())
    }

    /// Judges outcomes with a [`Classify`](crate::Classify) of your own: for when it depends on the
    /// request whether a repeat is right.
    ///
    /// ```
    /// use tower_jitter_retry::{Attempt, Classify, RetryLayer, Verdict};
    ///
    /// #[derive(Clone)]
    /// enum Query {
    ///     Read(String),
    ///     Write(String),
    /// }
    ///
    /// /// Only reads are safe to repeat.
    /// #[derive(Clone)]
    /// struct Reads;
    ///
    /// impl<Res, E> Classify<Query, Res, E> for Reads {
    ///     type Context = bool;
    ///
    ///     fn context(&self, query: &Query) -> bool {
    ///         matches!(query, Query::Read(_))
    ///     }
    ///
    ///     fn may_repeat(&self, is_read: &bool) -> bool {
    ///         *is_read
    ///     }
    ///
    ///     fn classify(&self, _: &bool, _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
    ///         match outcome {
    ///             Ok(_) => Verdict::Success,
    ///             Err(_) => Verdict::transient(),
    ///         }
    ///     }
    /// }
    ///
    /// let layer = RetryLayer::builder().classify(Reads).build()?;
    /// # let _ = (layer, Query::Write(String::new()));
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify<C>(self, classify: C) -> RetryLayerBuilder<Rules<C, ByClone>, O> {
        let replays = ByClone;
        self.rules(Rules { classify, replays })
    }

    /// Judges outcomes with a closure.
    ///
    /// ```
    /// use tower_jitter_retry::{Attempt, RetryLayer, Verdict};
    ///
    /// let layer = RetryLayer::builder()
    ///     .classify_fn(|outcome: &Result<String, std::io::Error>, _| match outcome {
    ///         Ok(answer) if answer == "try again" => Verdict::transient(),
    ///         Ok(_) => Verdict::Success,
    ///         Err(_) => Verdict::Fatal,
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify_fn<F, Res, E>(self, classify: F) -> RetryLayerBuilder<Rules<F, ByClone>, O>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify(classify)
    }
}

#[cfg(feature = "http")]
impl<C, O> RetryLayerBuilder<Rules<C, ByBody>, O> {
    /// How much of a request's body is recorded while it streams, in bytes, so that the request can
    /// be sent again. A longer body is sent once. Bodies in memory are shared and have no limit.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each request that is in flight may take so much.
    pub fn replay_limit(self, bytes: usize) -> Self {
        let classify = self.rules.classify;
        let replays = ByBody::with_limit(bytes);
        RetryLayerBuilder {
            rules: Rules { classify, replays },
            observer: self.observer,
            knobs: self.knobs,
        }
    }
}

#[cfg(feature = "http")]
impl<O> RetryLayerBuilder<Http, O> {
    /// Judges outcomes, and which requests may be repeated or hedged, with a
    /// [`Classify`](crate::Classify) of your own.
    pub fn classify<C>(self, classify: C) -> RetryLayerBuilder<Rules<C, ByBody>, O> {
        let replays = self.rules.replays;
        self.rules(Rules { classify, replays })
    }

    /// Gives a closure the last word on outcomes; it sees what the standard rules say.
    ///
    /// ```
    /// use tower_jitter_retry::{RetryLayer, Verdict};
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .classify_fn(|outcome| match outcome.status() {
    ///         Some(status) if status == 404 => Verdict::transient(),
    ///         _ => outcome.verdict(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify_fn<F>(self, classify: F) -> RetryLayerBuilder<Rules<HttpClassify<F>, ByBody>, O>
    where
        F: Fn(HttpOutcome<'_>) -> Verdict,
    {
        self.classify(HttpClassify::with(classify))
    }
}

impl<C, R, O> RetryLayerBuilder<Rules<C, R>, O> {
    /// Computes the delays with a closure of the 0-based retry and the outcome before it, in place
    /// of [`backoff`](Self::backoff). A server's hint is still a floor. Comes after the rules are chosen.
    ///
    /// ```
    /// use std::{io, time::Duration};
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .backoff_fn(|retry, outcome: &Result<String, io::Error>| match outcome {
    ///         Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Duration::from_secs(1),
    ///         _ => Duration::from_millis(50) * retry,
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn backoff_fn<F, Res, E>(
        self,
        backoff: F,
    ) -> RetryLayerBuilder<Rules<CustomBackoff<C, F>, R>, O>
    where
        F: Fn(u32, &Result<Res, E>) -> Duration,
    {
        let Rules { classify, replays } = self.rules;
        RetryLayerBuilder {
            rules: Rules {
                classify: CustomBackoff::new(classify, backoff),
                replays,
            },
            observer: self.observer,
            knobs: self.knobs,
        }
    }
}
