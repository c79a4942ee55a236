#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
#[cfg(feature = "http")]
use tower_attempt::Http;
use tower_attempt::{Attempt, Budget, BudgetBy, Budgets, ByClone, Plain, Rules, Verdict};

use super::HedgeLayerBuilder;

impl<P, O, X> HedgeLayerBuilder<P, O, X> {
    pub(super) fn rules<T>(self, rules: T) -> HedgeLayerBuilder<T, O, X> {
        HedgeLayerBuilder::new(rules, self.observer, self.options, self.knobs)
    }
}

impl<C, R, O, X> HedgeLayerBuilder<Rules<C, R>, O, X> {
    /// The allowances that hedges draw on and eligible calls pay into, of which the closure picks one for
    /// each request: a backend that is slow does not use up what is there for the others. In place of
    /// [`budget`](Self::budget), which together with it is an error of [`build`](Self::build), and not changed
    /// by a [handle](crate::HedgeHandle). Comes after the rules are chosen.
    ///
    /// The trigger is learned from all calls together, and moved up as far as one of these budgets pays;
    /// for one of its own per backend there is [`key`](Self::key).
    ///
    /// ```
    /// use http::Request;
    /// use tower_hedge_latency::{Budget, Budgets, HedgeLayer};
    /// # type Body = ();
    ///
    /// let budgets = Budgets::new(Budget::ratio(0.05).initial(10));
    /// let layer = HedgeLayer::builder()
    ///     .http()
    ///     .budget_by(budgets, |budgets, request: &Request<Body>| {
    ///         budgets.get(&request.uri().authority())
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn budget_by<F, Req>(
        mut self,
        budgets: Budgets,
        pick: F,
    ) -> HedgeLayerBuilder<Rules<BudgetBy<C, F>, R>, O, X>
    where
        F: Fn(&Budgets, &Req) -> Budget,
    {
        self.knobs.budgets = Some(budgets.clone());
        self.knobs.deposits = Some(true);
        let Rules { classify, replays } = self.rules;
        let rules = Rules {
            classify: BudgetBy::new(classify, budgets, pick),
            replays,
        };
        HedgeLayerBuilder::new(rules, self.observer, self.options, self.knobs)
    }

    /// Like [`budget_by`](Self::budget_by), with allowances that a layer above pays into: a retry layer with
    /// `budget_by` of the same [`Budgets`] and the same closure.
    pub fn shared_budget_by<F, Req>(
        self,
        budgets: Budgets,
        pick: F,
    ) -> HedgeLayerBuilder<Rules<BudgetBy<C, F>, R>, O, X>
    where
        F: Fn(&Budgets, &Req) -> Budget,
    {
        let mut builder = self.budget_by(budgets, pick);
        builder.knobs.deposits = Some(false);
        builder
    }
}

impl<O, X> HedgeLayerBuilder<Plain, O, X> {
    /// Goes by the rules of HTTP: only idempotent requests are hedged, and an answer that a retry
    /// would repeat, such as a 503 or a 429, does not win. See [`HttpClassify`](crate::HttpClassify).
    #[cfg(feature = "http")]
    pub fn http(self) -> HedgeLayerBuilder<Http, O, X> {
        self.rules(Http::default())
    }

    /// Goes by the rules of gRPC: only calls of methods that are known to be idempotent are hedged, see
    /// [`idempotent_methods`](HedgeLayerBuilder::idempotent_methods), and UNAVAILABLE does not win. A
    /// server's pushback sets the time of the next hedge, earlier or later than the trigger's, and moves the hedges
    /// after it along; a negative one calls them off. (A lone failure ends the call: waiting with no attempt in
    /// flight is left to a retry layer.) See
    /// [`GrpcClassify`](crate::GrpcClassify).
    #[cfg(feature = "grpc")]
    pub fn grpc(self) -> HedgeLayerBuilder<Grpc, O, X> {
        self.rules(Grpc::default())
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
    ///     fn may_hedge(&self, length: &usize, _: &String) -> bool {
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
    pub fn classify<C>(self, classify: C) -> HedgeLayerBuilder<Rules<C, ByClone>, O, X> {
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
    pub fn classify_fn<F, Res, E>(self, classify: F) -> HedgeLayerBuilder<Rules<F, ByClone>, O, X>
    where
        F: Fn(&Result<Res, E>, &Attempt) -> Verdict,
    {
        self.classify(classify)
    }
}
