#[cfg(feature = "http")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
use tower_attempt::layer::{Live, Parts};
use tower_attempt::{BuildError, Elapsed, Generic, Protocol};
#[cfg(feature = "http")]
use tower_attempt::{Dialect, Http, OutcomeView};

use crate::settings::{Knobs, Settings};
use crate::time_limit::Limited;
use crate::{Backoff, NoObserver, NoTimeLimit, OnTimeout, Retry, RetryCounts, RetryHandle};

/// Puts [`Retry`] around services.
///
/// `P` is the protocol: [`Http`](crate::Http), `Grpc` or [`Generic`]; `O` is the observer, and `T` the kind
/// of time limits. Every service that this layer or a clone of it makes
/// shares the budget, the jitter's seed, the settings and the counts.
#[derive(Clone)]
pub struct RetryLayer<P = Generic, O = NoObserver, T = NoTimeLimit>(
    pub(crate) Parts<P, O, T, Live<Settings>>,
);

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
        RetryLayerBuilder(Parts {
            protocol: Generic::default(),
            observer: NoObserver,
            options: NoTimeLimit,
            settings: Knobs::default(),
        })
    }
}

/// Configures a [`RetryLayer`].
///
/// The protocol comes first. All other setters come in any order, and none of the rules changes the layer's type.
///
/// ```
/// use std::time::Duration;
/// use http::StatusCode;
/// use tower_jitter_retry::{Budget, Budgets, Http, RetryLayer, Verdict};
/// # fn random_uuid() -> http::HeaderValue { http::HeaderValue::from_static("8e03978e-40d5-43dd-bc93-6894a57f9324") }
/// # fn main() -> Result<(), tower_jitter_retry::BuildError> {
///
/// let retry: RetryLayer<Http> = RetryLayer::builder()
///     .http()
///     .name("payments")                                             // label of metrics, spans and log lines
///     .budget_by(Budgets::new(Budget::default()), |request| request.authority())
///     .idempotent_if(|request| request.path() == "/search")         // this POST is safe to resend
///     .retry_statuses([StatusCode::LOCKED])                         // besides the default ones
///     .classify(|outcome| match outcome.status() {                  // the last word on what happened, not on what is safe
///         Some(StatusCode::NOT_FOUND) if outcome.attempt().number() == 1 => Verdict::transient(),
///         _ => outcome.verdict(),
///     })
///     .backoff_by(|retry, outcome| (outcome.status() == Some(StatusCode::CONFLICT)).then(|| retry * Duration::from_millis(10)))
///     .generate_idempotency_key(|| random_uuid())
///     .max_attempts(4)
///     .build()?;
/// # assert_eq!(retry.handle().budget().available(), 100);
/// # Ok(())
/// # }
/// ```
///
/// Any other service needs a rule only if not every `Err` is worth a retry. (Here the closure needs its annotation.)
///
/// ```
/// # use tower_jitter_retry::RetryLayer;
/// # struct Reply;
/// # struct Failure;
/// # impl Failure { fn is_busy(&self) -> bool { true } }
/// # fn main() -> Result<(), tower_jitter_retry::BuildError> {
/// let layer = RetryLayer::builder().retry_if(|outcome: &Result<Reply, Failure>| matches!(outcome, Err(e) if e.is_busy())).build()?;
/// # let _ = (layer, Reply, Failure);
/// # Ok(())
/// # }
/// ```
///
/// # Default
///
/// | setting | default | source |
/// |---|---|---|
/// | `max_attempts` | 3, the first one included | AWS SDKs, SRE book |
/// | `backoff` | 100 ms · 2ⁿ up to 20 s, full jitter; throttled calls start from 1 s | AWS SDKs |
/// | `budget` | 20 % of successful calls + 10 per second, burst 100 | Finagle, linkerd2 |
/// | `max_retry_after` | 60 s | |
/// | `retry_until`, `attempt_timeout`, `deadline` | no limit; a request's own [`RetryOverride`](crate::RetryOverride) is honoured | |
/// | `replay_limit` | 64 KiB | linkerd2 |
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder<P = Generic, O = NoObserver, T = NoTimeLimit>(Parts<P, O, T, Knobs>);

tower_attempt::__layer! {
    "tower_jitter_retry", "retries", RetryLayerBuilder, RetryLayer, Retry<T>,
    RetryHandle, RetryCounts, Knobs,
    /// Retries HTTP requests; see [`Http`].
    http,
    /// Retries gRPC calls; see [`Grpc`].
    grpc,
    #[cfg(feature = "http")]
    idempotent_if of [P: Dialect,] P,
    as in "    .http().idempotent_if(|request| request.path() == \"/search\")",
}

impl<P, O, T> RetryLayerBuilder<P, O, T> {
    /// The maximum number of attempts per call, the first one included; at least 1.
    ///
    /// # Default
    ///
    /// 3.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.0.settings.max_attempts = Some(attempts);
        self
    }

    /// The delay before each retry.
    ///
    /// # Default
    ///
    /// [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.0.settings.backoff = Some(backoff);
        self
    }

    /// The maximum `Retry-After` to honour. If the server asks for a longer wait, the response is returned.
    ///
    /// # Default
    ///
    /// 60 s.
    pub fn max_retry_after(mut self, longest: Duration) -> Self {
        self.0.settings.max_retry_after = Some(longest);
        self
    }

    /// How long after a call's start further attempts may go out. A failure whose repeat would come
    /// later is returned at once, without a wait.
    ///
    /// Ends nothing that is in flight, nor the wait for the service to become ready for an attempt that
    /// was decided on in time: there is no answer to give by then. For that, see
    /// [`deadline`](Self::deadline). The deadline of a [`RetryOverride`](crate::RetryOverride) wins
    /// over it.
    pub fn retry_until(mut self, limit: Duration) -> Self {
        self.0.settings.retry_until = Some(limit);
        self
    }

    /// Sets what the caller gets when a time limit ran out, and turns hard time limits on: without
    /// [`attempt_timeout`](Self::attempt_timeout) and [`deadline`](Self::deadline), those of the requests themselves.
    ///
    /// For error types that can't say it themselves, and for other answers than theirs.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_jitter_retry::{Elapsed, RetryLayer};
    ///
    /// #[derive(Debug)]
    /// enum StoreError {
    ///     Late(Elapsed),
    /// }
    ///
    /// let layer = RetryLayer::builder()
    ///     .deadline(Duration::from_secs(2))
    ///     .on_timeout(|elapsed| Err::<String, _>(StoreError::Late(elapsed)))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn on_timeout<F, Res, E>(self, answer: F) -> RetryLayerBuilder<P, O, OnTimeout<F>>
    where
        F: Fn(Elapsed) -> Result<Res, E>,
    {
        RetryLayerBuilder(self.0.options(|_| OnTimeout(answer)))
    }

    /// Builds the layer.
    ///
    /// # Errors
    ///
    /// Names the first setting that is out of its range, with its value and its range, or that contradicts
    /// another one.
    pub fn build(self) -> Result<RetryLayer<P, O, T>, BuildError>
    where
        P: Protocol,
        T: Limited,
    {
        self.0.settings.validate()?;
        self.0.protocol.validate()?;
        Ok(self.finish())
    }

    /// The layer, if the settings are known to be valid.
    fn finish(self) -> RetryLayer<P, O, T>
    where
        T: Limited,
    {
        let live = |knobs| Live::new(Settings::new(knobs, T::IS_HARD));
        RetryLayer(self.0.settings(live))
    }
}

impl<P, O, T: Limited> RetryLayerBuilder<P, O, T> {
    /// How long an attempt may take until it is answered, from when it is sent. One that takes longer is
    /// dropped, and repeated if its request is idempotent. For services without a protocol, the rule decides:
    /// the default rule repeats it, and [`retry_if`](RetryLayerBuilder::retry_if) is asked about the timeout's answer.
    ///
    /// The [`RetryOverride`](crate::RetryOverride) of a request wins over it. Choose
    /// what the slowest good answers take, such as the 99.9th percentile.
    ///
    /// The last attempt's timeout is the call's answer. What it looks like is up to the service's error
    /// type, see [`TimeoutAnswer`](crate::TimeoutAnswer), or to [`on_timeout`](RetryLayerBuilder::on_timeout).
    ///
    /// # Default
    ///
    /// No limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .attempt_timeout(Duration::from_millis(500))
    ///     .deadline(Duration::from_secs(2))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn attempt_timeout(mut self, limit: Duration) -> RetryLayerBuilder<P, O, T::Hard> {
        self.0.settings.attempt_timeout = Some(limit);
        RetryLayerBuilder(self.0.options(T::hard))
    }

    /// How long a call may take in all until it is answered: attempts, waits and readiness for further
    /// attempts. Then whatever it does is dropped.
    ///
    /// The deadline of a [`RetryOverride`](crate::RetryOverride) wins over it; a `grpc-timeout` only
    /// shortens it, since it comes from the other side.
    ///
    /// # Default
    ///
    /// No limit.
    pub fn deadline(mut self, limit: Duration) -> RetryLayerBuilder<P, O, T::Hard> {
        self.0.settings.deadline = Some(limit);
        RetryLayerBuilder(self.0.options(T::hard))
    }
}

#[cfg(feature = "http")]
impl<P: Dialect, O, T> RetryLayerBuilder<P, O, T> {
    /// Computes delays with a closure of the retry, counted from 1, and the outcome before it. With
    /// `None` the layer's [`backoff`](Self::backoff) counts. A server's hint is still a floor.
    ///
    /// # Default
    ///
    /// The layer's backoff.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::StatusCode;
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .retry_statuses([StatusCode::CONFLICT])
    ///     .backoff_by(|retry, outcome| {
    ///         (outcome.status() == Some(StatusCode::CONFLICT)).then(|| retry * Duration::from_millis(10))
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn backoff_by(
        self,
        rule: impl Fn(u32, OutcomeView<'_, P::Code>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.rule(|settings| settings.backoff = Some(Arc::new(rule)))
    }
}

#[cfg(feature = "http")]
impl<O, T> RetryLayerBuilder<Http, O, T> {
    /// Retries a 429 only if the request is idempotent.
    ///
    /// # Default
    ///
    /// A 429 is retried for every method, POST included, as a rejection comes before the work. A
    /// server that answers 429 after it has begun needs this setting.
    pub fn retry_429_for_idempotent_only(self) -> Self {
        self.rule(|settings| settings.spare_429 = true)
    }

    /// Declares that the client below follows no redirects, so that its errors are about the request
    /// that it was given.
    ///
    /// # Default
    ///
    /// reqwest's client is taken to follow redirects, as it does by default. Then a connection that is
    /// refused may be that of the page after the order was placed, and is no proof.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let retry = RetryLayer::builder().http().without_redirects().build()?;
    /// # let _ = retry;
    /// // Around `reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?`.
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn without_redirects(self) -> Self {
        self.rule(|settings| settings.no_redirects = true)
    }
}
