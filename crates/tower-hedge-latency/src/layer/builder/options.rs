use std::fmt::Display;
use std::hash::Hash;

use super::HedgeLayerBuilder;
#[cfg(feature = "drain")]
use crate::Drain;
use crate::elsewhere::Alternates;
use crate::key::ByKey;
use crate::options::Options;
#[cfg(feature = "http")]
use {
    crate::UsedEndpoints,
    crate::elsewhere::{Chosen, Spread},
    tower_attempt::Attempt,
};

impl<P, O, K, A, L> HedgeLayerBuilder<P, O, Options<K, A, L>> {
    /// Learns a percentile for each class of requests by itself.
    ///
    /// Where some requests take much longer than others for a reason of their own, they would be what
    /// is late, and take all hedges. With a key per class each class has 1 − q of its own calls
    /// hedged. Choose keys of which there are few, such as a route or a method: each needs its own
    /// samples. Beyond 256 keys the rest share one class.
    ///
    /// # Cost
    ///
    /// A hash and a look-up per call without a lock, and whatever the closure costs: a `&'static str`
    /// or a number is free, a `String` is allocated for each call. 16 KB per key, so 4 MB at most.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::builder()
    ///     .percentile(0.95)
    ///     .key(|request: &http::Request<String>| match request.uri().path() {
    ///         "/report" => "report",
    ///         _ => "page",
    ///     })
    ///     .http()
    ///     .build()?;
    /// # let _ = layer;
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn key<F, Req, T>(self, key: F) -> HedgeLayerBuilder<P, O, Options<ByKey<F>, A, L>>
    where
        F: Fn(&Req) -> T,
        T: Hash + Display,
    {
        self.options(|options| Options {
            key: ByKey(key),
            elsewhere: options.elsewhere,
            losers: options.losers,
        })
    }

    /// Sends hedges to other services than the first attempt: the first hedge of a call to the first of
    /// these, the second to the second, and around. With none of them, hedges go to the same service.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tower::{Layer, service_fn};
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let region = |name: &'static str| {
    ///     service_fn(move |request: String| async move { Ok::<_, tower::BoxError>(format!("{request} from {name}")) })
    /// };
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(50))
    ///     .alternates([region("west"), region("north")])
    ///     .build()?;
    /// let service = layer.layer(region("east"));
    /// # let _ = tower::ServiceExt::oneshot(service, String::new());
    /// # Ok::<_, tower_hedge_latency::BuildError>(())
    /// ```
    pub fn alternates<S>(
        self,
        services: impl IntoIterator<Item = S>,
    ) -> HedgeLayerBuilder<P, O, Options<K, Alternates<S>, L>> {
        self.elsewhere(Alternates::new(services))
    }

    /// Sends each hedge to the service that a closure says, which sees the attempt and what the
    /// call's earlier attempts have put into its [`UsedEndpoints`].
    #[cfg(feature = "http")]
    pub fn alternates_fn<F, S>(self, choose: F) -> HedgeLayerBuilder<P, O, Options<K, Chosen<F>, L>>
    where
        F: Fn(Attempt, &UsedEndpoints) -> S,
    {
        self.elsewhere(Chosen(choose))
    }

    /// Gives the attempts of a call a list of [`UsedEndpoints`] in their extensions, for a balancer
    /// below to send each to an endpoint of its own.
    ///
    /// A replica that is slow for some time is slow for the hedge, too: the more so the fewer there
    /// are.
    #[cfg(feature = "http")]
    pub fn spread(self) -> HedgeLayerBuilder<P, O, Options<K, Spread, L>> {
        self.elsewhere(Spread)
    }

    /// Lets the losers of a race end in the background instead of dropping them, so that their HTTP/1
    /// connections can be used again.
    #[cfg(feature = "drain")]
    pub fn drain(self, drain: Drain) -> HedgeLayerBuilder<P, O, Options<K, A, Drain>> {
        self.options(|options| Options {
            key: options.key,
            elsewhere: options.elsewhere,
            losers: drain,
        })
    }

    fn elsewhere<T>(self, elsewhere: T) -> HedgeLayerBuilder<P, O, Options<K, T, L>> {
        self.options(|options| Options {
            key: options.key,
            elsewhere,
            losers: options.losers,
        })
    }

    fn options<T>(self, change: impl FnOnce(Options<K, A, L>) -> T) -> HedgeLayerBuilder<P, O, T> {
        HedgeLayerBuilder::new(
            self.protocol,
            self.observer,
            change(self.options),
            self.knobs,
        )
    }
}
