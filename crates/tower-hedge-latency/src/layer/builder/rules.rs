#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
#[cfg(feature = "http")]
use tower_attempt::Http;
use tower_attempt::{Attempt, ByClone, Plain, Rules, Verdict};

use super::HedgeLayerBuilder;

impl<P, O, X> HedgeLayerBuilder<P, O, X> {
    pub(super) fn rules<T>(self, rules: T) -> HedgeLayerBuilder<T, O, X> {
        HedgeLayerBuilder::new(rules, self.observer, self.options, self.knobs)
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
    /// server's pushback postpones the hedges that are still to come, or calls them off. See
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
