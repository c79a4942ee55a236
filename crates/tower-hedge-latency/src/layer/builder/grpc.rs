use tower_attempt::{ByMessage, Grpc, GrpcClassify, GrpcOutcome, Rules, Verdict};

use super::HedgeLayerBuilder;

impl<C, O, X> HedgeLayerBuilder<Rules<C, ByMessage>, O, X> {
    /// How much of what a call sends is recorded, in bytes, so that it can be sent again. Of a longer one
    /// there is no hedge.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each call that is in flight may take so much.
    pub fn replay_limit(mut self, bytes: usize) -> Self {
        self.rules.replays = ByMessage::with_limit(bytes);
        self
    }
}

impl<F, O, X> HedgeLayerBuilder<Rules<GrpcClassify<F>, ByMessage>, O, X> {
    /// Methods that may run more than once for one call, by their full names, such as
    /// `/helloworld.Greeter/SayHello`. Calls of any other are not hedged.
    ///
    /// # Default
    ///
    /// None.
    pub fn idempotent_methods<N: Into<String>>(
        mut self,
        paths: impl IntoIterator<Item = N>,
    ) -> Self {
        self.rules.classify = self.rules.classify.idempotent_methods(paths);
        self
    }
}

impl<O, X> HedgeLayerBuilder<Grpc, O, X> {
    /// Gives a closure the last word on outcomes; it sees what the standard rules say. What it calls a
    /// retry does not win while another attempt is in flight: gRFC A6's non-fatal status codes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower_hedge_latency::{GrpcCode, HedgeLayer, Verdict};
    ///
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(10))
    ///     .grpc()
    ///     .idempotent_methods(["/helloworld.Greeter/SayHello"])
    ///     .classify_fn(|outcome| match outcome.code() {
    ///         Some(GrpcCode::Aborted | GrpcCode::Internal) => Verdict::transient(),
    ///         _ => outcome.verdict(),
    ///     })
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn classify_fn<F>(
        self,
        classify: F,
    ) -> HedgeLayerBuilder<Rules<GrpcClassify<F>, ByMessage>, O, X>
    where
        F: Fn(GrpcOutcome<'_>) -> Verdict,
    {
        let Rules {
            classify: rules,
            replays,
        } = self.rules;
        let classify = rules.last_word(classify);
        HedgeLayerBuilder::new(
            Rules { classify, replays },
            self.observer,
            self.options,
            self.knobs,
        )
    }
}
