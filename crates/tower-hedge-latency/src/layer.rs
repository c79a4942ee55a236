mod builder;

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use tower_attempt::Generic;
#[cfg(feature = "http")]
use tower_attempt::Http;
#[cfg(feature = "grpc")]
use tower_attempt::{BuildError, Grpc};
use tower_layer::Layer;

pub use self::builder::HedgeLayerBuilder;
use crate::options::Options;
use crate::settings::{Knobs, Settings};
use crate::{Hedge, HedgeHandle, NoObserver};

/// Puts [`Hedge`] around services.
///
/// `P` is the protocol: [`Http`](crate::Http), `Grpc` or [`Generic`]; `O` is the observer, and `X` the
/// other options. Every service that this layer or a clone of
/// it makes shares the budget, the settings, the counts and what is learned.
pub struct HedgeLayer<P = Generic, O = NoObserver, X = Options> {
    protocol: P,
    observer: O,
    options: X,
    pub(crate) settings: Arc<ArcSwap<Settings>>,
}

#[cfg(feature = "http")]
impl HedgeLayer<Http> {
    /// Hedges HTTP requests of safe methods (GET, HEAD, OPTIONS, TRACE, QUERY) that take longer than 95 of
    /// 100, once each, and no more than 5 % of them: the defaults of [`HedgeLayerBuilder`] and the rules
    /// of [`Http`].
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
    /// 5 % of them: the defaults of [`HedgeLayerBuilder`] and the rules of [`Grpc`]. The methods, by
    /// their full names, have to be idempotent.
    ///
    /// # Errors
    ///
    /// Without a method no call would be hedged.
    ///
    /// ```
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// assert!(HedgeLayer::grpc(["/helloworld.Greeter/SayHello"]).is_ok());
    /// let error = HedgeLayer::grpc([""; 0]).unwrap_err();
    /// assert_eq!(error.field(), "idempotent_methods");
    /// ```
    pub fn grpc<N: Into<String>>(
        idempotent_methods: impl IntoIterator<Item = N>,
    ) -> Result<Self, BuildError> {
        let builder = HedgeLayer::builder().grpc();
        builder.idempotent_methods(idempotent_methods).build()
    }
}

impl HedgeLayer {
    /// A layer for any service whose requests are `Clone`; every request may be hedged.
    pub fn builder() -> HedgeLayerBuilder {
        HedgeLayerBuilder::new(
            Generic::default(),
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
            protocol: self.protocol.clone(),
            observer: self.observer.clone(),
            options: self.options.clone(),
            settings: Arc::clone(&self.settings),
        }
    }
}

impl<S, P: Clone, O: Clone, X: Clone> Layer<S> for HedgeLayer<P, O, X> {
    type Service = Hedge<S, P, O, X>;

    fn layer(&self, inner: S) -> Self::Service {
        let (protocol, observer) = (self.protocol.clone(), self.observer.clone());
        let (options, settings) = (self.options.clone(), Arc::clone(&self.settings));
        Hedge::new(inner, protocol, observer, options, settings)
    }
}

impl<P, O, X> fmt::Debug for HedgeLayer<P, O, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HedgeLayer")
            .field("settings", &self.settings.load())
            .finish_non_exhaustive()
    }
}
