//! The setters that choose a protocol and its rules.

#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
use tower_attempt::{Attempt, ClassifyFn, Generic, Verdict};
#[cfg(feature = "http")]
use tower_attempt::{Budgets, Dialect, Http, RequestHead, Settings};

use super::HedgeLayerBuilder;

impl<P, O, X> HedgeLayerBuilder<P, O, X> {
    fn protocol<N>(self, protocol: N) -> HedgeLayerBuilder<N, O, X> {
        HedgeLayerBuilder::new(protocol, self.observer, self.options, self.knobs)
    }
}

impl<O, X> HedgeLayerBuilder<Generic, O, X> {
    /// Hedges HTTP requests of safe methods. A response that a retry layer would retry, such as a 503 or
    /// a 429, does not win. See [`Http`].
    #[cfg(feature = "http")]
    pub fn http(self) -> HedgeLayerBuilder<Http, O, X> {
        self.protocol(Http::default())
    }

    /// Hedges gRPC calls of the methods declared idempotent with
    /// [`idempotent_methods`](HedgeLayerBuilder::idempotent_methods) or
    /// [`idempotent_if`](HedgeLayerBuilder::idempotent_if). UNAVAILABLE does not win. A server's pushback
    /// sets the time of the next hedge, earlier or later than the trigger's, and moves the hedges after it
    /// along; a negative pushback cancels them. A lone failure ends the call: waiting with no attempt in
    /// flight is left to a retry layer. See [`Grpc`].
    #[cfg(feature = "grpc")]
    pub fn grpc(self) -> HedgeLayerBuilder<Grpc, O, X> {
        self.protocol(Grpc::default())
    }

    /// Classifies outcomes with a closure. An outcome to be retried does not win while another attempt is
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
    pub fn classify_fn<F, Res, E>(
        self,
        classify: F,
    ) -> HedgeLayerBuilder<Generic<ClassifyFn<F>>, O, X>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify_with(ClassifyFn(classify))
    }

    /// Decides with a rule of your own which requests may be hedged, and classifies their outcomes; see
    /// [`RequestRule`](crate::RequestRule) and [`Classify`](crate::Classify).
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_hedge_latency::{Attempt, Classify, HedgeLayer, RequestRule, Verdict};
    ///
    /// /// Hedges small requests only.
    /// #[derive(Clone)]
    /// struct Small;
    ///
    /// impl RequestRule<String> for Small {
    ///     type Context = usize;
    ///
    ///     fn context(&self, request: &String) -> usize {
    ///         request.len()
    ///     }
    ///
    ///     fn may_hedge(&self, length: &usize) -> bool {
    ///         *length < 1024
    ///     }
    /// }
    ///
    /// impl<Res, E> Classify<String, Res, E> for Small {
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
    ///     .classify_with(Small)
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn classify_with<C>(self, rule: C) -> HedgeLayerBuilder<Generic<C>, O, X> {
        self.protocol(Generic::new(rule))
    }
}

#[cfg(feature = "http")]
impl<P: Dialect, O, X> HedgeLayerBuilder<P, O, X> {
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

    /// Hedges only the requests for which a closure returns `true`, among those that may be hedged.
    ///
    /// # Default
    ///
    /// HTTP: all requests of safe methods. gRPC: all calls of methods declared idempotent.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::builder()
    ///     .http()
    ///     .hedge_if(|request| request.path() != "/report")
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn hedge_if(self, rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.set(|settings| settings.hedge_if(rule))
    }

    /// Classifies outcomes with a closure, which sees the verdict of the standard rules. An outcome to be
    /// retried does not win while another attempt is in flight: gRFC A6's non-fatal status codes.
    ///
    /// # Default
    ///
    /// The tables of [`Http`] and `Grpc`.
    ///
    /// # Cost
    ///
    /// With this rule each call allocates a copy of its method and URI.
    ///
    /// ```
    /// use std::time::Duration;
    /// use http::StatusCode;
    /// use tower_hedge_latency::{HedgeLayer, Verdict};
    ///
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(10))
    ///     .http()
    ///     .classify(|outcome| match outcome.status() {
    ///         Some(StatusCode::NOT_FOUND) => Verdict::transient(),
    ///         _ => outcome.verdict(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn classify(
        self,
        rule: impl Fn(P::Outcome<'_>) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.classify(rule))
    }

    /// The budgets that hedges draw on and eligible calls pay into. The closure names the key of each
    /// request's budget, so that a slow backend does not use up the budget of the others.
    ///
    /// Requests for which the closure returns `None` share one budget. A [handle](crate::HedgeHandle)
    /// does not change these budgets. The trigger is learned from all calls together, and moved up as far
    /// as one of these budgets pays; for one of its own per backend there is [`key`](Self::key).
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
    /// use tower_hedge_latency::{Budget, Budgets, HedgeLayer};
    ///
    /// let budgets = Budgets::new(Budget::ratio(0.05).initial(10));
    /// let layer = HedgeLayer::builder()
    ///     .http()
    ///     .budget_by(budgets, |request| request.authority())
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn budget_by(
        mut self,
        budgets: Budgets,
        key: impl for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        self.knobs.budgets = Some(budgets.clone());
        self.knobs.deposits = Some(true);
        self.set(|settings| settings.budget_by(budgets, key))
    }

    /// Like [`budget_by`](Self::budget_by), with budgets that a layer above pays into: a retry layer with
    /// `budget_by` of the same [`Budgets`] and the same closure.
    pub fn shared_budget_by(
        self,
        budgets: Budgets,
        key: impl for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
    ) -> Self {
        let mut builder = self.budget_by(budgets, key);
        builder.knobs.deposits = Some(false);
        builder
    }

    fn set(mut self, set: impl FnOnce(&mut Settings<P>)) -> Self {
        self.protocol = self.protocol.with(set);
        self
    }
}

#[cfg(feature = "http")]
impl<O, X> HedgeLayerBuilder<Http, O, X> {
    /// Also hedges the requests of unsafe methods for which a closure returns `true`.
    ///
    /// Two attempts of such a request may run concurrently, in any order, and either may win. A DELETE
    /// may show its caller the 404 of the second attempt, and a PUT with a precondition its 412. A
    /// cancelled PUT may take effect after the caller's next one.
    ///
    /// # Default
    ///
    /// No request: only GET, HEAD, OPTIONS, TRACE and QUERY are hedged.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::builder()
    ///     .http()
    ///     .hedge_unsafe_if(|request| request.path() == "/search") // a POST that only reads
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn hedge_unsafe_if(
        self,
        rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.hedge_unsafe_if(rule))
    }
}

#[cfg(feature = "grpc")]
impl<O, X> HedgeLayerBuilder<Grpc, O, X> {
    /// The full names of methods that are idempotent, such as `/helloworld.Greeter/SayHello`. Only calls
    /// of these are hedged, and those of [`idempotent_if`](Self::idempotent_if). The leading slash is
    /// optional.
    ///
    /// # Default
    ///
    /// None.
    ///
    /// # Errors
    ///
    /// [`build`](Self::build) rejects an empty list, and a layer that declares no method at all.
    pub fn idempotent_methods<N: Into<String>>(self, names: impl IntoIterator<Item = N>) -> Self {
        self.set(|settings| settings.idempotent_methods(names))
    }

    /// Declares idempotent the methods for which a closure returns `true`, besides the listed ones.
    ///
    /// # Default
    ///
    /// None.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::builder()
    ///     .grpc()
    ///     .idempotent_if(|call| call.path().starts_with("/catalog.Reader/"))
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn idempotent_if(
        self,
        rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.set(|settings| settings.idempotent_if(rule))
    }
}
