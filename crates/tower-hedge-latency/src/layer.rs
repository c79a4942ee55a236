mod builder;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
#[cfg(feature = "http")]
use tower_attempt::Http;
use tower_attempt::Plain;
use tower_layer::Layer;

pub use self::builder::HedgeLayerBuilder;
use crate::options::Options;
use crate::settings::{Knobs, Settings};
use crate::{Hedge, HedgeHandle, NoObserver};

/// Puts [`Hedge`] around services.
///
/// `P` is what the layer knows of the protocol: [`Http`](crate::Http) or [`Plain`]; `O` is its
/// observer, and `X` what else was asked of the builder. Every service that this layer or a clone of
/// it makes shares the budget, the settings, the counts and what is learned.
pub struct HedgeLayer<P = Plain, O = NoObserver, X = Options> {
    rules: P,
    observer: O,
    options: X,
    pub(crate) settings: Arc<ArcSwap<Settings>>,
}

#[cfg(feature = "http")]
impl HedgeLayer<Http> {
    /// Hedges idempotent HTTP requests that take longer than 95 of 100, once each, and no more than
    /// 5 % of them: the defaults of [`HedgeLayerBuilder`] and the rules of
    /// [`HttpClassify`](crate::HttpClassify).
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::http();
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn http() -> Self {
        HedgeLayer::builder().http().finish()
    }
}

#[cfg(feature = "grpc")]
impl HedgeLayer<Grpc> {
    /// Hedges gRPC calls of these methods that take longer than 95 of 100, once each, and no more than
    /// 5 % of them: the defaults of [`HedgeLayerBuilder`] and the rules of
    /// [`GrpcClassify`](crate::GrpcClassify). The methods, by their full names, have to be idempotent.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// let layer = HedgeLayer::grpc(["/helloworld.Greeter/SayHello"]);
    /// # let _ = layer;
    /// ```
    #[must_use]
    pub fn grpc<N: Into<String>>(idempotent_methods: impl IntoIterator<Item = N>) -> Self {
        let builder = HedgeLayer::builder().grpc();
        builder.idempotent_methods(idempotent_methods).finish()
    }
}

impl HedgeLayer {
    /// A layer for any service whose requests are `Clone`; every request may be hedged.
    pub fn builder() -> HedgeLayerBuilder {
        HedgeLayerBuilder::new(
            Plain::default(),
            NoObserver,
            Options::default(),
            Knobs::default(),
        )
    }
}

impl<P, O, X> HedgeLayer<P, O, X> {
    /// Watches the layer, and changes it while it is in use.
    #[must_use]
    pub fn handle(&self) -> HedgeHandle {
        HedgeHandle::new(&self.settings)
    }
}

impl<P: Clone, O: Clone, X: Clone> Clone for HedgeLayer<P, O, X> {
    fn clone(&self) -> Self {
        Self {
            rules: self.rules.clone(),
            observer: self.observer.clone(),
            options: self.options.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, P: Clone, O: Clone, X: Clone> Layer<S> for HedgeLayer<P, O, X> {
    type Service = Hedge<S, P, O, X>;

    fn layer(&self, inner: S) -> Self::Service {
        let (rules, observer) = (self.rules.clone(), self.observer.clone());
        let (options, settings) = (self.options.clone(), Arc::clone(&self.settings));
        Hedge::new(inner, rules, observer, options, settings)
    }
}

impl<P, O, X> fmt::Debug for HedgeLayer<P, O, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgeLayer")
            .field("settings", &self.settings.load())
            .finish_non_exhaustive()
    }
}
