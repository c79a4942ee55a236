//! The setters that choose a protocol and its rules.

#[cfg(feature = "http")]
use std::time::Duration;

#[cfg(feature = "http")]
use http::{HeaderValue, StatusCode};
#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
use tower_attempt::{Attempt, ClassifyFn, Generic, RetryIf, Verdict};
#[cfg(feature = "http")]
use tower_attempt::{Budgets, Dialect, Http, RequestHead, Settings};

use super::RetryLayerBuilder;

impl<O, T> RetryLayerBuilder<Generic, O, T> {
    /// Retries HTTP requests; see [`Http`].
    #[cfg(feature = "http")]
    pub fn http(self) -> RetryLayerBuilder<Http, O, T> {
        self.protocol(Http::default())
    }

    /// Retries gRPC calls; see [`Grpc`].
    #[cfg(feature = "grpc")]
    pub fn grpc(self) -> RetryLayerBuilder<Grpc, O, T> {
        self.protocol(Grpc::default())
    }

    /// Retries the outcomes for which a closure returns `true`.
    ///
    /// # Default
    ///
    /// Every `Err` is retried and no `Ok`.
    ///
    /// ```
    /// use tower::{Layer, ServiceExt, service_fn};
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
    /// let layer = RetryLayer::builder()
    ///     .retry_if(|outcome: &Result<u32, String>| matches!(outcome, Err(error) if error == "busy"))
    ///     .build()?;
    /// let service = layer.layer(service_fn(|_: ()| async { Err::<u32, _>("not found".to_owned()) }));
    /// assert_eq!(service.oneshot(()).await.unwrap_err(), "not found");
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_if<F, Res, E>(self, retry: F) -> RetryLayerBuilder<Generic<RetryIf<F>>, O, T>
    where
        F: Fn(&Result<Res, E>) -> bool,
    {
        self.classify_with(RetryIf(retry))
    }

    /// Classifies outcomes with a closure: for verdicts other than "retry" and "do not retry", such as
    /// [`Verdict::throttled`].
    ///
    /// ```
    /// use tower_jitter_retry::{RetryLayer, Verdict};
    ///
    /// let layer = RetryLayer::builder()
    ///     .classify_fn(|outcome: &Result<String, std::io::Error>, _| match outcome {
    ///         Ok(answer) if answer == "try again" => Verdict::throttled(),
    ///         Ok(_) => Verdict::Success,
    ///         Err(_) => Verdict::Fatal,
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify_fn<F, Res, E>(
        self,
        classify: F,
    ) -> RetryLayerBuilder<Generic<ClassifyFn<F>>, O, T>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify_with(ClassifyFn(classify))
    }

    /// Decides with a rule of your own which requests may be resent, and classifies their outcomes; see
    /// [`RequestRule`](crate::RequestRule) and [`Classify`](crate::Classify).
    ///
    /// ```
    /// use tower_jitter_retry::{Attempt, Classify, RequestRule, RetryLayer, Verdict};
    ///
    /// #[derive(Clone)]
    /// enum Query {
    ///     Read(String),
    ///     Write(String),
    /// }
    ///
    /// /// Only reads are safe to resend.
    /// #[derive(Clone)]
    /// struct Reads;
    ///
    /// impl RequestRule<Query> for Reads {
    ///     type Context = bool;
    ///
    ///     fn context(&self, query: &Query) -> bool {
    ///         matches!(query, Query::Read(_))
    ///     }
    ///
    ///     fn may_retry(&self, is_read: &bool) -> bool {
    ///         *is_read
    ///     }
    /// }
    ///
    /// impl<Res, E> Classify<Query, Res, E> for Reads {
    ///     fn classify(&self, _: &bool, _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
    ///         match outcome {
    ///             Ok(_) => Verdict::Success,
    ///             Err(_) => Verdict::transient(),
    ///         }
    ///     }
    /// }
    ///
    /// let layer = RetryLayer::builder().classify_with(Reads).build()?;
    /// # let _ = (layer, Query::Write(String::new()));
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify_with<C>(self, rule: C) -> RetryLayerBuilder<Generic<C>, O, T> {
        self.protocol(Generic::new(rule))
    }
}

#[cfg(feature = "http")]
impl<P: Dialect, O, T> RetryLayerBuilder<P, O, T> {
    /// The number of bytes to record of a request's body while it streams, so that the request can be
    /// resent. A longer body is sent once. Bodies in memory are shared and have no limit.
    ///
    /// A frame counts its content, and at least 64 bytes, so that a record takes at most twice the limit in memory.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each request in flight may take that much.
    pub fn replay_limit(self, bytes: usize) -> Self {
        self.set(|settings| settings.replay_limit(bytes))
    }

    /// Declares requests idempotent, besides those that the protocol knows: they are resent after any
    /// failure that is retried.
    ///
    /// For a POST that only reads, or that the server deduplicates. This is the only way in which a
    /// setting makes a resend safe; a [`classify`](Self::classify) rule never does.
    ///
    /// # Default
    ///
    /// HTTP: idempotent methods and requests with an `Idempotency-Key`. gRPC: none.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .idempotent_if(|request| request.path() == "/search")
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn idempotent_if(
        self,
        rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.idempotent_if(rule))
    }

    /// Classifies outcomes with a closure, which sees the verdict of the standard rules.
    ///
    /// The closure has the last word on what happened, and none on what is safe: a verdict that asks for
    /// a retry is obeyed only if the request is idempotent, if there is proof that the server did not
    /// process it, or if the server rejected it (HTTP's 429, gRPC's pushback). It is also asked about
    /// attempts that timed out.
    ///
    /// # Default
    ///
    /// The tables of [`Http`] and `Grpc`.
    ///
    /// # Cost
    ///
    /// With this rule or [`backoff_by`](Self::backoff_by) each call allocates a copy of its method and
    /// URI.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_jitter_retry::{RetryLayer, Verdict};
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .classify(|outcome| match outcome.status() {
    ///         // Read from a replica that lags behind.
    ///         Some(StatusCode::NOT_FOUND) if outcome.attempt().number() == 1 => Verdict::transient(),
    ///         _ => outcome.verdict(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify(
        self,
        rule: impl Fn(P::Outcome<'_>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.classify(rule))
    }

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
        rule: impl Fn(u32, P::Outcome<'_>) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.backoff_by(rule))
    }

    /// The budgets that retries draw on and successful calls pay into. The closure names the key of each
    /// request's budget, so that a failing backend does not use up the budget of the others.
    ///
    /// Requests for which the closure returns `None` share one budget. A [handle](crate::RetryHandle)
    /// does not change these budgets.
    ///
    /// # Default
    ///
    /// One [`budget`](Self::budget) for all requests.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) rejects it together with `budget`.
    ///
    /// ```
    /// use tower_jitter_retry::{Budget, Budgets, RetryLayer};
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .budget_by(Budgets::new(Budget::default()), |request| request.authority())
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn budget_by(
        mut self,
        budgets: Budgets,
        key: impl for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        self.knobs.budgets = Some(budgets.clone());
        self.knobs.deposits = true;
        self.set(|settings| settings.budget_by(budgets, key))
    }

    /// Like [`budget_by`](Self::budget_by), with budgets that a layer above pays into.
    pub fn shared_budget_by(
        self,
        budgets: Budgets,
        key: impl for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        let mut builder = self.budget_by(budgets, key);
        builder.knobs.deposits = false;
        builder
    }

    fn set(mut self, set: impl FnOnce(&mut Settings<P>)) -> Self {
        self.protocol = self.protocol.with(set);
        self
    }
}

#[cfg(feature = "http")]
impl<O, T> RetryLayerBuilder<Http, O, T> {
    /// The statuses to retry for idempotent requests, besides the default ones.
    ///
    /// # Default
    ///
    /// None besides 408, 425, 429, 500, 502, 503 and 504.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) rejects a status below 400, which is no failure.
    ///
    /// ```
    /// use http::StatusCode;
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let builder = RetryLayer::builder().http();
    /// assert!(builder.clone().retry_statuses([StatusCode::LOCKED]).build().is_ok());
    /// let error = builder.retry_statuses([StatusCode::FOUND]).build().unwrap_err();
    /// assert_eq!(error.field(), "retry_statuses");
    /// ```
    pub fn retry_statuses(self, statuses: impl IntoIterator<Item = StatusCode>) -> Self {
        self.set(|settings| settings.retry_statuses(statuses))
    }

    /// Adds an `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) to each request that has
    /// none and whose method is not idempotent, so that it may be resent like any other. For servers
    /// that keep the promise: with one that ignores the key, a resent POST acts twice.
    ///
    /// A key has to be new for every request, such as a random UUID. All attempts of a request have the
    /// same key.
    ///
    /// # Default
    ///
    /// No request gets a key.
    ///
    /// ```
    /// use tower_jitter_retry::RetryLayer;
    /// # fn random_uuid() -> http::HeaderValue { http::HeaderValue::from_static("8e03978e-40d5-43dd-bc93-6894a57f9324") }
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .generate_idempotency_key(random_uuid)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn generate_idempotency_key(
        self,
        generate: impl Fn() -> HeaderValue + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.generate_idempotency_key(generate))
    }

    /// Retries a 429 only if the request is idempotent.
    ///
    /// # Default
    ///
    /// A 429 is retried for every method, POST included, as a rejection comes before the work. A
    /// server that answers 429 after it has begun needs this setting.
    pub fn retry_429_for_idempotent_only(self) -> Self {
        self.set(Settings::retry_429_for_idempotent_only)
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
        self.set(Settings::without_redirects)
    }
}

#[cfg(feature = "grpc")]
impl<O, T> RetryLayerBuilder<Grpc, O, T> {
    /// The full names of methods that are idempotent, such as `/helloworld.Greeter/SayHello`. Their calls
    /// are also retried after UNAVAILABLE, a broken connection or a timeout of the attempt. The leading
    /// slash is optional.
    ///
    /// [`idempotent_if`](Self::idempotent_if) declares further methods with a closure.
    ///
    /// # Default
    ///
    /// None.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) rejects an empty list.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_jitter_retry::RetryLayer;
    ///
    /// let layer = RetryLayer::builder()
    ///     .grpc()
    ///     .idempotent_methods(["/helloworld.Greeter/SayHello"])
    ///     .attempt_timeout(Duration::from_secs(1))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn idempotent_methods<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.set(|settings| settings.idempotent_methods(names))
    }
}
