use tower_attempt::{ByBody, Http, HttpClassify, HttpOutcome, Rules, Verdict};

use super::HedgeLayerBuilder;

impl<C, O, X> HedgeLayerBuilder<Rules<C, ByBody>, O, X> {
    /// How much of a request's body is recorded while it streams, in bytes, so that the request can
    /// be sent again. A longer body is sent once. Bodies in memory are shared and have no limit.
    ///
    /// # Default
    ///
    /// 64 KiB, as in linkerd2. Each request that is in flight may take so much.
    pub fn replay_limit(self, bytes: usize) -> Self {
        let replays = ByBody::with_limit(bytes);
        Self {
            rules: Rules {
                replays,
                ..self.rules
            },
            ..self
        }
    }
}

impl<O, X> HedgeLayerBuilder<Http, O, X> {
    /// Judges outcomes, and which requests may be repeated or hedged, with a
    /// [`Classify`](crate::Classify) of your own.
    pub fn classify<C>(self, classify: C) -> HedgeLayerBuilder<Rules<C, ByBody>, O, X> {
        let replays = self.rules.replays;
        self.rules(Rules { classify, replays })
    }

    /// Gives a closure the last word on outcomes; it sees what the standard rules say.
    pub fn classify_fn<F>(
        self,
        classify: F,
    ) -> HedgeLayerBuilder<Rules<HttpClassify<F>, ByBody>, O, X>
    where
        F: Fn(HttpOutcome<'_>) -> Verdict,
    {
        self.classify(HttpClassify::default().last_word(classify))
    }
}
