#[cfg(feature = "http")]
use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
use tower_attempt::layer::{Live, Parts};
use tower_attempt::{BuildError, Elapsed, Generic, Protocol};
#[cfg(feature = "http")]
use tower_attempt::{Dialect, Http, OutcomeView};

use crate::settings::{Config, Settings};
use crate::time_limit::Limited;
use crate::{Backoff, NoObserver, NoTimeLimit, OnTimeout, Retry, RetryCounts, RetryHandle};

/// A layer that wraps services in [`Retry`].
///
/// `P` is the protocol: [`Http`](crate::Http), `Grpc` or [`Generic`]. `O` is the observer. If the layer can end an
/// attempt in flight, `T` is [`StandardAnswer`](crate::StandardAnswer) or [`OnTimeout`]; otherwise it is
/// [`NoTimeLimit`]. All services of this layer and its clones share the budget, the jitter's seed, the settings and the
/// counts.
#[derive(Clone)]
pub struct RetryLayer<P = Generic, O = NoObserver, T = NoTimeLimit>(
    pub(crate) Parts<P, O, T, Live<Settings>>,
);

#[cfg(feature = "grpc")]
impl RetryLayer<Grpc> {
    /// Retries gRPC calls according to gRFC A6, with the defaults of [`RetryLayerBuilder`] and the rules of [`Grpc`].
    ///
    /// The layer retries after UNAVAILABLE and after RESOURCE_EXHAUSTED, each only with a server's pushback. It also
    /// retries after proof that the server did not process the call. To retry UNAVAILABLE without a pushback, build the
    /// layer with [`builder`](RetryLayer::builder), and declare methods
    /// [idempotent](RetryLayerBuilder::idempotent_methods).
    ///
    /// ```
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Empty;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
    /// let ok = service_fn(|_: Request<_>| async {
    ///     Response::builder().header("grpc-status", 0).body(String::new()).map_err(BoxError::from)
    /// });
    /// let service = RetryLayer::grpc().layer(ok);
    /// let response = service.oneshot(Request::new(Empty::<Bytes>::new())).await?;
    /// assert_eq!(response.headers()["grpc-status"], "0");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn grpc() -> Self {
        RetryLayer::builder().grpc().finish()
    }
}

/// Configures a [`RetryLayer`].
///
/// Choose the protocol first, with `http` or `grpc`. Call all other setters in any order.
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
///     .retry_statuses([StatusCode::CONFLICT])                       // besides the default ones
///     .classify(|outcome| match outcome.status() {                  // never makes an unsafe resend safe
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
/// A service that speaks neither HTTP nor gRPC needs a rule if some `Err` must not be retried, or some `Ok` must be.
/// The closure of such a rule usually needs a type annotation.
///
/// ```
/// # use tower::{Layer, ServiceExt, service_fn};
/// # use tower_jitter_retry::RetryLayer;
/// # struct Reply;
/// # #[derive(Debug)] struct Failure;
/// # impl Failure { fn is_busy(&self) -> bool { true } }
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
/// let layer = RetryLayer::builder().retry_if(|outcome: &Result<Reply, Failure>| matches!(outcome, Err(e) if e.is_busy())).build()?;
/// let service = layer.layer(service_fn(|_: ()| async { Err::<Reply, _>(Failure) }));
/// assert!(service.oneshot(()).await.is_err());
/// assert_eq!(layer.handle().counts().retries, 2);
/// # Ok(())
/// # }
/// ```
///
/// # Default
///
/// | setting | default | source |
/// |---|---|---|
/// | `max_attempts` | 3, the first one included | AWS SDKs, SRE book |
/// | `backoff` | 100 ms · 2ⁿ up to 20 s, full jitter; throttled calls start from 1 s | AWS SDK for Java 2.x |
/// | `budget` | 20 % of successful calls + 10 per second, burst 100 | Finagle, linkerd2 |
/// | `max_retry_after` | 60 s | |
/// | `retry_until`, `attempt_timeout`, `deadline` | no limit; the deadline of a [`RetryOverride`](crate::RetryOverride) and a `grpc-timeout` are honoured | |
/// | `replay_limit` | 64 KiB | linkerd2 |
#[derive(Clone)]
#[must_use = "a builder does nothing until it is built"]
pub struct RetryLayerBuilder<P = Generic, O = NoObserver, T = NoTimeLimit>(Parts<P, O, T, Config>);

tower_attempt::__layer! {
    /// Retries HTTP requests that are safe to resend, with the defaults of [`RetryLayerBuilder`] and the rules of
    /// [`Http`](crate::Http).
    http,
    /// Returns a builder of a layer for services whose requests are `Clone`. By default no `Ok` of the service is
    /// retryable, and every `Err` is, except a [rejection](crate::Rejected) without a wait.
    builder,
    "tower_jitter_retry", "retries", RetryLayerBuilder, RetryLayer, Retry<T>,
    RetryHandle, RetryCounts, Config,
    /// Retries HTTP requests; see [`Http`](crate::Http).
    http,
    /// Retries gRPC calls; see [`Grpc`].
    grpc,
    #[cfg(feature = "http")]
    idempotent_if of [P: Dialect,] P,
    as in {
        /// ```
        /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        /// use bytes::Bytes;
        /// use http::{Request, Response};
        /// use http_body_util::Full;
        /// use tower::{BoxError, Layer, ServiceExt, service_fn};
        /// use tower_jitter_retry::RetryLayer;
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
        /// let layer = RetryLayer::builder().http().idempotent_if(|request| request.path() == "/search").build()?;
        ///
        /// let attempts = AtomicU32::new(0);
        /// let service = layer.layer(service_fn(|_: Request<_>| {
        ///     let first = attempts.fetch_add(1, Relaxed) == 0;
        ///     let response = Response::builder().status(if first { 503 } else { 200 }).body(String::new());
        ///     async { response.map_err(BoxError::from) }
        /// }));
        /// let search = Request::post("/search").body(Full::<Bytes>::from("tower"))?;
        /// assert_eq!(service.oneshot(search).await?.status(), 200);
        /// assert_eq!(attempts.load(Relaxed), 2);
        /// # Ok(())
        /// # }
        /// ```
    },
}

impl<P, O, T> RetryLayerBuilder<P, O, T> {
    /// The maximum number of attempts per call, the first one included; at least 1. The retries of a retry layer below
    /// are also counted, if that layer sends them in the same task. The `max_attempts` of a
    /// [`RetryOverride`](crate::RetryOverride) replaces this maximum.
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
    /// A rule of your own can choose another delay: see [`backoff_by`](RetryLayerBuilder::backoff_by) and
    /// [`Classify::backoff`](crate::Classify::backoff).
    ///
    /// Unless a `classify` rule names another wait, a server's `Retry-After` is a lower bound for the delay, and a gRPC
    /// pushback replaces the delay. A call's first retry after [`Verdict::Unprocessed`](crate::Verdict::Unprocessed) is
    /// sent without a delay.
    ///
    /// # Default
    ///
    /// [`Backoff::default`].
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.0.settings.backoff = Some(backoff);
        self
    }

    /// The maximum wait to honour. The wait can come from a `Retry-After`, a gRPC pushback, a layer below, or the
    /// verdict of a user's rule. If it is longer than this maximum, the caller receives the failure immediately. If a
    /// `classify` rule names a wait, that wait counts instead of the server's.
    ///
    /// # Default
    ///
    /// 60 s.
    pub fn max_retry_after(mut self, longest: Duration) -> Self {
        self.0.settings.max_retry_after = Some(longest);
        self
    }

    /// The time after the call's start from which on no retry is scheduled. If the delay before a retry would end at
    /// this time or later, the caller receives the failure immediately.
    ///
    /// This limit ends neither an attempt in flight nor a retry's wait for the service to become ready;
    /// [`deadline`](Self::deadline) ends both. So a retry that waits for the service may be sent after this time. The
    /// deadline of a [`RetryOverride`](crate::RetryOverride) replaces this limit.
    ///
    /// # Default
    ///
    /// No limit.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::Instant;
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::{Backoff, RetryLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
    /// let layer = RetryLayer::builder()
    ///     .max_attempts(10)
    ///     .backoff(Backoff::constant(Duration::from_secs(1)))
    ///     .retry_until(Duration::from_secs(3))
    ///     .build()?;
    ///
    /// let start = Instant::now();
    /// let service = layer.layer(service_fn(|_: ()| async { Err::<(), _>("down") }));
    /// service.oneshot(()).await.unwrap_err();
    /// assert_eq!(layer.handle().counts().retries, 2); // after 1 s and 2 s
    /// assert_eq!(start.elapsed(), Duration::from_secs(2));
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_until(mut self, limit: Duration) -> Self {
        self.0.settings.retry_until = Some(limit);
        self
    }

    /// The closure that creates the outcome of a timeout. If no retry is scheduled, the caller receives this outcome.
    ///
    /// The layer calls the closure each time that a time limit ends an attempt or the call, also if a retry follows.
    /// Use this setting for an error type that does not implement [`TimeoutAnswer`](crate::TimeoutAnswer), or to
    /// replace the default outcome.
    ///
    /// Requests can carry limits: those of a [`RetryOverride`](crate::RetryOverride), and over gRPC a `grpc-timeout`.
    /// With this setting the layer enforces them, even if neither [`attempt_timeout`](Self::attempt_timeout) nor
    /// [`deadline`](Self::deadline) is set.
    ///
    /// # Default
    ///
    /// The outcome that the protocol or the service's error type defines.
    ///
    /// ```
    /// use std::future::pending;
    /// use std::time::Duration;
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::{Elapsed, RetryLayer};
    ///
    /// #[derive(Debug)]
    /// enum StoreError {
    ///     Late(Elapsed),
    /// }
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), tower::BoxError> {
    /// let layer = RetryLayer::builder()
    ///     .deadline(Duration::from_secs(2))
    ///     .on_timeout(|elapsed| Err::<String, _>(StoreError::Late(elapsed)))
    ///     .build()?;
    ///
    /// let service = layer.layer(service_fn(|_: ()| pending()));
    /// assert!(matches!(service.oneshot(()).await, Err(StoreError::Late(_))));
    /// # Ok(())
    /// # }
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
    /// Returns an error if a setting is out of its range, or if two settings contradict each other. The error names one
    /// such setting, its value and its range.
    pub fn build(self) -> Result<RetryLayer<P, O, T>, BuildError>
    where
        P: Protocol,
        T: Limited,
    {
        self.0.settings.validate()?;
        self.0.protocol.validate()?;
        Ok(self.finish())
    }

    /// Builds a layer from valid settings.
    fn finish(self) -> RetryLayer<P, O, T>
    where
        T: Limited,
    {
        let live = |config| Live::new(Settings::new(config, T::IS_HARD));
        RetryLayer(self.0.settings(live))
    }
}

impl<P, O, T: Limited> RetryLayerBuilder<P, O, T> {
    /// Maximum time from sending an attempt to its response, above zero. A slower attempt is dropped, and may be
    /// retried if its request is idempotent.
    ///
    /// For a service that speaks neither HTTP nor gRPC, your rule decides whether to retry after a timeout. For
    /// example, a [`retry_if`](RetryLayerBuilder::retry_if) closure receives the outcome that the timeout creates.
    /// Without a rule, a timeout of an attempt is retryable.
    ///
    /// The `attempt_timeout` of a [`RetryOverride`](crate::RetryOverride) replaces this limit.
    ///
    /// As the limit, choose the duration of the slowest successful responses, such as the 99.9th percentile.
    ///
    /// If an attempt times out and no retry is scheduled, the caller receives the outcome of the
    /// [`on_timeout`](RetryLayerBuilder::on_timeout) closure. Without a closure, the outcome is DEADLINE_EXCEEDED over
    /// gRPC, and that of [`TimeoutAnswer`](crate::TimeoutAnswer) otherwise.
    ///
    /// # Default
    ///
    /// No limit.
    ///
    /// ```
    /// use std::future::pending;
    /// use std::time::Duration;
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Empty;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .attempt_timeout(Duration::from_millis(500))
    ///     .deadline(Duration::from_secs(2))
    ///     .build()?;
    ///
    /// let stalled = service_fn(|_: Request<_>| pending::<Result<Response<String>, BoxError>>());
    /// let outcome = layer.layer(stalled).oneshot(Request::new(Empty::<Bytes>::new())).await;
    /// assert!(outcome.is_err());
    /// assert_eq!(layer.handle().counts().retries, 2); // each attempt timed out
    /// # Ok(())
    /// # }
    /// ```
    pub fn attempt_timeout(mut self, limit: Duration) -> RetryLayerBuilder<P, O, T::Hard> {
        self.0.settings.attempt_timeout = Some(limit);
        RetryLayerBuilder(self.0.options(T::hard))
    }

    /// Maximum duration of a call until its response, with all attempts and the waits between them; above zero. When
    /// this limit expires, the layer drops the attempt in flight or ends the wait, and the call times out. If the delay
    /// before a retry would end when the limit expires or later, the caller receives the failure immediately.
    ///
    /// The deadline of a [`RetryOverride`](crate::RetryOverride) replaces this limit. A `grpc-timeout` can only shorten
    /// this limit.
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
    /// Computes the delay before a retry with a closure. The closure receives the retry's number, counted from 1, and
    /// the outcome of the failed attempt. If the closure returns `None`, the layer's [`backoff`](Self::backoff)
    /// applies.
    ///
    /// Unless a `classify` rule names another wait, a server's `Retry-After` remains a lower bound, and a gRPC pushback
    /// replaces the delay. Such a pushback also restarts the retry numbers at 1. A call's first retry after
    /// [`Verdict::Unprocessed`](crate::Verdict::Unprocessed) is immediate and has no number.
    ///
    /// # Default
    ///
    /// The layer's backoff.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bytes::Bytes;
    /// use http::{Request, Response, StatusCode};
    /// use http_body_util::Empty;
    /// use tokio::time::Instant;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .retry_statuses([StatusCode::CONFLICT])
    ///     .backoff_by(|retry, outcome| {
    ///         (outcome.status() == Some(StatusCode::CONFLICT)).then(|| retry * Duration::from_millis(10))
    ///     })
    ///     .build()?;
    ///
    /// let conflict = service_fn(|_: Request<_>| async {
    ///     Response::builder().status(StatusCode::CONFLICT).body(String::new()).map_err(BoxError::from)
    /// });
    /// let start = Instant::now();
    /// layer.layer(conflict).oneshot(Request::new(Empty::<Bytes>::new())).await?;
    /// assert_eq!(start.elapsed(), Duration::from_millis(10 + 20)); // before the first and the second retry
    /// # Ok(())
    /// # }
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
    /// Retries a 429 only if the request is idempotent. Use this setting for a server that may send 429 after it has
    /// begun to process a request.
    ///
    /// # Default
    ///
    /// A 429 is usually retried for any method except CONNECT, because most servers send 429 before they process a
    /// request.
    pub fn retry_429_for_idempotent_only(self) -> Self {
        self.rule(|settings| settings.retry_429_for_idempotent_only = true)
    }

    /// Declares that the client below follows no redirects. So its errors refer to the original request.
    ///
    /// # Default
    ///
    /// The layer assumes that a client that takes `reqwest::Request` follows redirects, as reqwest's client does by
    /// default. After a redirect, a refused connection proves nothing about the original request: the first server may
    /// have processed that request, and the redirect's target may have refused the connection. The layer assumes that a
    /// client that takes any other request type follows no redirects. For such a client, this setting changes nothing.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// // Around `reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).build()?`.
    /// let retry = RetryLayer::builder().http().without_redirects().build();
    /// assert!(retry.is_ok());
    /// ```
    pub fn without_redirects(self) -> Self {
        self.rule(|settings| settings.no_redirects = true)
    }
}
