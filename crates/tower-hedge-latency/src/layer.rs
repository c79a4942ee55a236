mod builder;
mod options;

use tower_attempt::Generic;
use tower_attempt::layer::{Live, Parts};
#[cfg(feature = "grpc")]
use tower_attempt::{BuildError, Grpc};

pub use self::builder::HedgeLayerBuilder;
use crate::destination::Anywhere;
use crate::losers::Cancel;
use crate::settings::{Config, Settings};
use crate::{Hedge, HedgeCounts, HedgeHandle, NoObserver};

/// A layer that wraps services in [`Hedge`].
///
/// `P` is the protocol: [`Http`](crate::Http), `Grpc` or [`Generic`]. `O` is the observer. `A` chooses the destination
/// of hedges. `L` disposes of losers, the attempts that another attempt has overtaken. All services of this layer and
/// its clones share the budget, the settings, the counts and the learned latencies.
#[derive(Clone)]
pub struct HedgeLayer<P = Generic, O = NoObserver, A = Anywhere, L = Cancel>(
    pub(crate) Parts<P, O, (A, L), Live<Settings>>,
);

#[cfg(feature = "grpc")]
impl HedgeLayer<Grpc> {
    /// Hedges gRPC calls of the given methods, with the defaults of [`HedgeLayerBuilder`] and the rules of [`Grpc`].
    ///
    /// By default, a call is hedged at most once, after the 95th percentile of latency, within a budget of 5 % extra
    /// load. The methods are given by their full names, and must be idempotent.
    ///
    /// # Errors
    ///
    /// Returns an error if the list of methods is empty.
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

tower_attempt::__layer! {
    /// Hedges HTTP requests of safe methods (GET, HEAD, OPTIONS, TRACE, QUERY), with the defaults of
    /// [`HedgeLayerBuilder`] and the rules of [`Http`](crate::Http).
    ///
    /// By default, a request is hedged at most once, after the 95th percentile of latency, within a budget of 5 % extra
    /// load.
    http,
    /// Returns a builder of a layer for services that are `Clone` and have `Clone` requests. By default every request
    /// may be hedged.
    builder,
    "tower_hedge_latency", "hedges", HedgeLayerBuilder, HedgeLayer, Hedge<A, L>,
    HedgeHandle, HedgeCounts, Config,
    /// Hedges HTTP requests of safe methods. A retryable failure, such as a 503 or a 429, does not win while another
    /// attempt is in flight. See [`Http`](crate::Http).
    http,
    /// Hedges gRPC calls of the methods declared idempotent with
    /// [`idempotent_methods`](HedgeLayerBuilder::idempotent_methods) or
    /// [`idempotent_if`](HedgeLayerBuilder::idempotent_if). See [`Grpc`].
    ///
    /// A retryable failure, such as UNAVAILABLE, does not win while another attempt is in flight. If the failure has a
    /// pushback, this pushback sets the time of the next hedge, earlier or later than the trigger does. All later
    /// hedges shift by the same time. Of several pushbacks, the one that ends last counts. A negative or malformed
    /// pushback cancels all further hedges.
    ///
    /// If an attempt fails and no other is in flight, the call ends, unless
    /// [`hedge_on_failure`](HedgeLayerBuilder::hedge_on_failure) sends a hedge.
    grpc,
    #[cfg(feature = "grpc")]
    idempotent_if of [] Grpc,
    as in {
        /// ```
        /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
        /// use std::time::Duration;
        /// use bytes::Bytes;
        /// use http::{Request, Response};
        /// use http_body_util::Empty;
        /// use tower::{BoxError, Layer, ServiceExt, service_fn};
        /// use tower_hedge_latency::HedgeLayer;
        ///
        /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
        /// let layer = HedgeLayer::builder()
        ///     .grpc()
        ///     .idempotent_if(|call| call.path().starts_with("/catalog.Reader/"))
        ///     .fixed(Duration::from_millis(20))
        ///     .build()?;
        ///
        /// let attempts = AtomicU32::new(0);
        /// let service = layer.layer(service_fn(|_: Request<_>| {
        ///     attempts.fetch_add(1, Relaxed);
        ///     async {
        ///         tokio::time::sleep(Duration::from_millis(50)).await;
        ///         Ok::<_, BoxError>(Response::new(String::new()))
        ///     }
        /// }));
        /// service.oneshot(Request::post("/catalog.Reader/Get").body(Empty::<Bytes>::new())?).await?;
        /// assert_eq!(attempts.load(Relaxed), 2);
        /// # Ok(())
        /// # }
        /// ```
    },
}
