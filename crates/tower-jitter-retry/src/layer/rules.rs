//! What a layer's protocol is, and what of its rules can be changed.

use std::time::Duration;

#[cfg(feature = "http")]
use http::HeaderValue;
use tower_attempt::{
    Attempt, Budget, BudgetBy, Budgets, ByClone, CustomBackoff, Plain, Rules, Verdict,
};
#[cfg(feature = "http")]
use tower_attempt::{ByBody, GenerateKey, Http, HttpClassify, HttpOutcome};
#[cfg(feature = "grpc")]
use tower_attempt::{ByMessage, Grpc, GrpcClassify, GrpcOutcome};

use super::RetryLayerBuilder;

impl<O, T> RetryLayerBuilder<Plain, O, T> {
    /// Goes by the rules of HTTP; see [`HttpClassify`](crate::HttpClassify).
    #[cfg(feature = "http")]
    pub fn http(self) -> RetryLayerBuilder<Http, O, T> {
        self.rules(Http::default())
    }

    /// Goes by the rules of gRPC; see [`GrpcClassify`](crate::GrpcClassify).
    #[cfg(feature = "grpc")]
    pub fn grpc(self) -> RetryLayerBuilder<Grpc, O, T> {
        self.rules(Grpc::default())
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
    pub fn classify<C>(self, classify: C) -> RetryLayerBuilder<Rules<C, ByClone>, O, T> {
        let replays = ByClone;
        self.rules(Rules { classify, replays })
    }

    /// Judges outcomes with a closure.
    ///
    /// ```
    /// use tower_jitter_retry::{RetryLayer, Verdict};
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
    pub fn classify_fn<F, Res, E>(self, classify: F) -> RetryLayerBuilder<Rules<F, ByClone>, O, T>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify(classify)
    }
}

#[cfg(feature = "http")]
impl<C, O, T> RetryLayerBuilder<Rules<C, ByBody>, O, T> {
    /// How much of a request's body is recorded while it streams, in bytes, so that the request can
    /// be sent again. A longer body is sent once. Bodies in memory are shared and have no limit.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each request that is in flight may take so much.
    pub fn replay_limit(mut self, bytes: usize) -> Self {
        self.rules.replays = ByBody::with_limit(bytes);
        self
    }

    /// Gives an `Idempotency-Key` (draft-ietf-httpapi-idempotency-key-header) to each request that has
    /// none and whose method is not idempotent, so that it may be repeated like any other. For servers
    /// that keep the promise: with one that ignores the key, a repeated POST acts twice.
    ///
    /// A key has to be new for every request, such as a random UUID; all attempts of a request have the
    /// same. Comes after the other rules are chosen.
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
    pub fn generate_idempotency_key<G>(
        self,
        generate: G,
    ) -> RetryLayerBuilder<Rules<GenerateKey<C, G>, ByBody>, O, T>
    where
        G: Fn() -> HeaderValue,
    {
        self.map_classify(|classify| GenerateKey::new(classify, generate))
    }
}

#[cfg(feature = "http")]
impl<F, O, T> RetryLayerBuilder<Rules<HttpClassify<F>, ByBody>, O, T> {
    /// Repeats a 429 only where any other failure would be repeated.
    ///
    /// # Default
    ///
    /// A 429 is repeated for every method, POST included, as a refusal comes before the work. A
    /// server that answers 429 after it has begun needs this.
    pub fn retry_429_for_idempotent_only(mut self) -> Self {
        self.rules.classify = self.rules.classify.retry_429_for_idempotent_only();
        self
    }

    /// The client below follows no redirects, so that its errors are about the request that it was given.
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
    pub fn without_redirects(mut self) -> Self {
        self.rules.classify = self.rules.classify.without_redirects();
        self
    }
}

#[cfg(feature = "http")]
impl<O, T> RetryLayerBuilder<Http, O, T> {
    /// Judges outcomes, and which requests may be repeated or hedged, with a
    /// [`Classify`](crate::Classify) of your own.
    pub fn classify<C>(self, classify: C) -> RetryLayerBuilder<Rules<C, ByBody>, O, T> {
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
    pub fn classify_fn<F>(
        self,
        classify: F,
    ) -> RetryLayerBuilder<Rules<HttpClassify<F>, ByBody>, O, T>
    where
        F: Fn(HttpOutcome<'_>) -> Verdict,
    {
        self.map_classify(|rules| rules.last_word(classify))
    }
}

#[cfg(feature = "grpc")]
impl<C, O, T> RetryLayerBuilder<Rules<C, ByMessage>, O, T> {
    /// How much of what a call sends is recorded, in bytes, so that the call can be made again. A longer
    /// one is made once.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each call that is in flight may take so much.
    pub fn replay_limit(mut self, bytes: usize) -> Self {
        self.rules.replays = ByMessage::with_limit(bytes);
        self
    }
}

#[cfg(feature = "grpc")]
impl<F, O, T> RetryLayerBuilder<Rules<GrpcClassify<F>, ByMessage>, O, T> {
    /// Methods that may run more than once for one call, by their full names: their attempts are
    /// repeated when they take too long.
    ///
    /// # Default
    ///
    /// None.
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
    pub fn idempotent_methods<N: Into<String>>(
        mut self,
        paths: impl IntoIterator<Item = N>,
    ) -> Self {
        self.rules.classify = self.rules.classify.idempotent_methods(paths);
        self
    }
}

#[cfg(feature = "grpc")]
impl<O, T> RetryLayerBuilder<Grpc, O, T> {
    /// Gives a closure the last word on outcomes; it sees what the standard rules say.
    ///
    /// ```
    /// use tower_jitter_retry::{GrpcCode, RetryLayer, Verdict};
    ///
    /// let layer = RetryLayer::builder()
    ///     .grpc()
    ///     .classify_fn(|outcome| match outcome.code() {
    ///         Some(GrpcCode::Aborted) => Verdict::transient(),
    ///         _ => outcome.verdict(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn classify_fn<F>(
        self,
        classify: F,
    ) -> RetryLayerBuilder<Rules<GrpcClassify<F>, ByMessage>, O, T>
    where
        F: Fn(GrpcOutcome<'_>) -> Verdict,
    {
        self.map_classify(|rules| rules.last_word(classify))
    }
}

impl<C, R, O, T> RetryLayerBuilder<Rules<C, R>, O, T> {
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
    ) -> RetryLayerBuilder<Rules<CustomBackoff<C, F>, R>, O, T>
    where
        F: Fn(u32, &Result<Res, E>) -> Duration,
    {
        self.map_classify(|classify| CustomBackoff::new(classify, backoff))
    }

    /// The allowances that retries draw on and successful calls pay into, of which the closure picks one
    /// for each request: a backend that fails does not use up what is there for the others. In place of
    /// [`budget`](Self::budget), which together with it is an error of [`build`](Self::build), and not changed
    /// by a [handle](crate::RetryHandle). Comes after the rules are chosen.
    ///
    /// ```
    /// use http::Request;
    /// use tower_jitter_retry::{Budget, Budgets, RetryLayer};
    /// # type Body = ();
    ///
    /// let layer = RetryLayer::builder()
    ///     .http()
    ///     .budget_by(Budgets::new(Budget::default()), |budgets, request: &Request<Body>| {
    ///         budgets.get(&request.uri().authority())
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_jitter_retry::BuildError>(())
    /// ```
    pub fn budget_by<F, Req>(
        mut self,
        budgets: Budgets,
        pick: F,
    ) -> RetryLayerBuilder<Rules<BudgetBy<C, F>, R>, O, T>
    where
        F: Fn(&Budgets, &Req) -> Budget,
    {
        self.knobs.budgets = Some(budgets.clone());
        self.knobs.deposits = true;
        self.map_classify(|classify| BudgetBy::new(classify, budgets, pick))
    }

    /// Like [`budget_by`](Self::budget_by), with allowances that a layer above pays into.
    pub fn shared_budget_by<F, Req>(
        self,
        budgets: Budgets,
        pick: F,
    ) -> RetryLayerBuilder<Rules<BudgetBy<C, F>, R>, O, T>
    where
        F: Fn(&Budgets, &Req) -> Budget,
    {
        let mut builder = self.budget_by(budgets, pick);
        builder.knobs.deposits = false;
        builder
    }

    fn map_classify<N>(self, map: impl FnOnce(C) -> N) -> RetryLayerBuilder<Rules<N, R>, O, T> {
        let Rules { classify, replays } = self.rules;
        RetryLayerBuilder {
            rules: Rules {
                classify: map(classify),
                replays,
            },
            observer: self.observer,
            limit: self.limit,
            knobs: self.knobs,
        }
    }
}
