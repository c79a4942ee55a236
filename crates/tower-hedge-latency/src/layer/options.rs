//! The setters of hedged requests, their classes, the destinations of hedges, and losers.

use std::fmt::Display;
use std::hash::Hash;
#[cfg(feature = "http")]
use std::sync::Arc;

#[cfg(feature = "grpc")]
use tower_attempt::Grpc;
#[cfg(feature = "http")]
use tower_attempt::{Attempt, Dialect, Http, RequestHead};
use tower_attempt::{ByKey, Generic};

use super::HedgeLayerBuilder;
#[cfg(feature = "drain")]
use crate::Drain;
use crate::destination::Alternates;
#[cfg(feature = "http")]
use crate::destination::{Chosen, Spread, UsedEndpoints};

impl<P, O, A, L> HedgeLayerBuilder<P, O, A, L> {
    /// The services that receive hedges, in rotation: the first hedge of a call goes to the first service, the second
    /// hedge to the second. A skipped hedge uses up its place in the rotation. If the list is empty, hedges go to the
    /// service of the first attempt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tokio::time::sleep;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
    /// let region = |name: &'static str, latency| {
    ///     service_fn(move |request: String| async move {
    ///         sleep(latency).await;
    ///         Ok::<_, BoxError>(format!("{request} from {name}"))
    ///     })
    /// };
    /// let layer = HedgeLayer::builder()
    ///     .fixed(Duration::from_millis(50))
    ///     .alternates([region("west", Duration::from_millis(30)), region("north", Duration::from_millis(30))])
    ///     .build()?;
    /// let service = layer.layer(region("east", Duration::from_secs(1)));
    /// assert_eq!(service.oneshot("page".to_owned()).await?, "page from west");
    /// # Ok(())
    /// # }
    /// ```
    pub fn alternates<S>(
        self,
        services: impl IntoIterator<Item = S>,
    ) -> HedgeLayerBuilder<P, O, Alternates<S>, L> {
        self.destination(Alternates::new(services))
    }

    /// Chooses the service of each hedge with a closure. The closure receives the attempt and the call's list of
    /// [`UsedEndpoints`], to which the services below can add.
    ///
    /// ```
    /// use std::time::Duration;
    /// use bytes::Bytes;
    /// use http::{Request, Response};
    /// use http_body_util::Empty;
    /// use tokio::time::sleep;
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_hedge_latency::{HedgeLayer, UsedEndpoints};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), BoxError> {
    /// let region = |name: &'static str, latency: Duration| {
    ///     service_fn(move |request: Request<Empty<Bytes>>| async move {
    ///         if let Some(used) = request.extensions().get::<UsedEndpoints>() {
    ///             used.add(name);
    ///         }
    ///         sleep(latency).await;
    ///         Ok::<_, BoxError>(Response::new(name.to_owned()))
    ///     })
    /// };
    /// let layer = HedgeLayer::builder()
    ///     .http()
    ///     .fixed(Duration::from_millis(50))
    ///     .alternates_fn(move |_, used| match used.contains("east") {
    ///         true => region("west", Duration::from_millis(30)),
    ///         false => region("east", Duration::from_millis(30)),
    ///     })
    ///     .build()?;
    /// let service = layer.layer(region("east", Duration::from_secs(1)));
    /// let response = service.oneshot(Request::new(Empty::new())).await?;
    /// assert_eq!(response.body(), "west");
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "http")]
    pub fn alternates_fn<F, S>(self, choose: F) -> HedgeLayerBuilder<P, O, Chosen<F>, L>
    where
        F: Fn(Attempt, &UsedEndpoints) -> S,
    {
        self.destination(Chosen(choose))
    }

    /// Puts a shared list of [`UsedEndpoints`] into the request extensions of all of a call's attempts, if the call may
    /// be hedged. So a balancer below can send each attempt to a different endpoint.
    ///
    /// Without this setting, a hedge may go to the same slow replica as the first attempt, and with few replicas it
    /// often does.
    #[cfg(feature = "http")]
    pub fn spread(self) -> HedgeLayerBuilder<P, O, Spread, L> {
        self.destination(Spread)
    }

    /// Drains losers, the attempts that another attempt has overtaken: within the limits of `drain`, they end in the
    /// background instead of being dropped. So their HTTP/1 connections usually stay usable.
    #[cfg(feature = "drain")]
    pub fn drain(self, drain: Drain) -> HedgeLayerBuilder<P, O, A, Drain> {
        HedgeLayerBuilder(self.0.options(|(destination, _)| (destination, drain)))
    }

    fn destination<T>(self, destination: T) -> HedgeLayerBuilder<P, O, T, L> {
        HedgeLayerBuilder(self.0.options(|(_, losers)| (destination, losers)))
    }
}

impl<C, K, O, A, L> HedgeLayerBuilder<Generic<C, K>, O, A, L> {
    /// Learns a separate percentile for each class of requests. The closure returns a request's key, which is the name
    /// of its class.
    ///
    /// With one class, requests of a kind that always takes long would receive most hedges. With a class for each kind,
    /// the slowest calls of each kind are hedged. Choose a key with few values, such as a route or a method, because
    /// each class needs its own samples. Requests with a key beyond the first 256 share one class.
    ///
    /// # Default
    ///
    /// One class.
    ///
    /// # Cost
    ///
    /// Per call, usually a hash, a look-up without a lock, and the cost of the closure. A `&'static str` or a number as
    /// key usually needs no allocation; a `String` is allocated for each call. 16 KB of memory per key, so at most
    /// about 4 MB.
    ///
    /// ```
    /// use tower::{BoxError, Layer, ServiceExt, service_fn};
    /// use tower_hedge_latency::HedgeLayer;
    ///
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
    /// let layer = HedgeLayer::builder()
    ///     .percentile(0.95)
    ///     .key(|query: &String| if query.starts_with("report") { "report" } else { "lookup" })
    ///     .build()?;
    ///
    /// let service = layer.layer(service_fn(|query: String| async { Ok::<_, BoxError>(query) }));
    /// service.oneshot("report of May".to_owned()).await?;
    /// assert_eq!(&*layer.handle().delays_by_key()[0].0, "report");
    /// # Ok(())
    /// # }
    /// ```
    pub fn key<F, Req, T>(mut self, key: F) -> HedgeLayerBuilder<Generic<C, ByKey<F>>, O, A, L>
    where
        F: Fn(&Req) -> T,
        T: Hash + Display,
    {
        self.0.settings.percentile.has_key = true;
        HedgeLayerBuilder(self.0.protocol(|protocol| protocol.key(key)))
    }
}

/// One impl for each protocol, because a common one would overlap with the impl for [`Generic`].
#[cfg(feature = "http")]
macro_rules! key {
    ($protocol:ty) => {
        impl<O, A, L> HedgeLayerBuilder<$protocol, O, A, L> {
            /// Learns a separate percentile for each class of requests. The closure returns a request's key, which is
            /// the name of its class.
            ///
            /// With one class, requests of a kind that always takes long would receive most hedges. With a class for
            /// each kind, the slowest calls of each kind are hedged. Choose a key with few values, such as a route or a
            /// method, because each class needs its own samples.
            ///
            /// Requests with a key beyond the first 256 share one class with the requests for which the closure returns
            /// `None`.
            ///
            /// # Default
            ///
            /// One class.
            ///
            /// # Cost
            ///
            /// Per call, usually a hash, a look-up without a lock, and the cost of the closure. 16 KB per key, so about
            /// 4 MB at most.
            ///
            /// ```
            /// use bytes::Bytes;
            /// use http::{Request, Response};
            /// use http_body_util::Empty;
            /// use tower::{BoxError, Layer, ServiceExt, service_fn};
            /// use tower_hedge_latency::HedgeLayer;
            ///
            /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
            /// let layer = HedgeLayer::builder()
            ///     .http()
            ///     .percentile(0.95)
            ///     .key(|request| match request.path() {
            ///         "/report" => Some("report"),
            ///         _ => Some("page"),
            ///     })
            ///     .build()?;
            ///
            /// let ok = service_fn(|_: Request<_>| async { Ok::<_, BoxError>(Response::new(String::new())) });
            /// layer.layer(ok).oneshot(Request::get("/report").body(Empty::<Bytes>::new())?).await?;
            /// assert_eq!(&*layer.handle().delays_by_key()[0].0, "report");
            /// # Ok(())
            /// # }
            /// ```
            pub fn key(
                mut self,
                key: impl for<'a> Fn(RequestHead<'a>) -> Option<&'a str> + Send + Sync + 'static,
            ) -> Self {
                self.0.settings.percentile.has_key = true;
                self.rule(|settings| settings.key = Some(Arc::new(key)))
            }
        }
    };
}
#[cfg(feature = "http")]
key!(Http);
#[cfg(feature = "grpc")]
key!(Grpc);

#[cfg(feature = "http")]
impl<P: Dialect, O, A, L> HedgeLayerBuilder<P, O, A, L> {
    /// Hedges only the requests for which a closure returns `true`, among those that the protocol or a
    /// `hedge_unsafe_if` closure allows to be hedged.
    ///
    /// # Default
    ///
    /// No further restriction. The protocol allows hedges of safe HTTP methods, and of gRPC methods that are declared
    /// idempotent.
    ///
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
    ///     .http()
    ///     .hedge_if(|request| request.path() != "/report")
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
    /// service.oneshot(Request::get("/report").body(Empty::<Bytes>::new())?).await?;
    /// assert_eq!(attempts.load(Relaxed), 1); // late, but not hedged
    /// # Ok(())
    /// # }
    /// ```
    pub fn hedge_if(self, rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.rule(|settings| settings.hedge_if = Some(Arc::new(rule)))
    }
}

#[cfg(feature = "http")]
impl<O, A, L> HedgeLayerBuilder<Http, O, A, L> {
    /// Also hedges the requests of unsafe methods for which a closure returns `true`, unless a
    /// [`hedge_if`](Self::hedge_if) closure excludes them. CONNECT and requests with `Upgrade` are never hedged.
    ///
    /// Two attempts of such a request may run concurrently, in any order, and either may win. The caller of a DELETE
    /// may receive a 404, because the other attempt has already deleted the resource. The caller of a PUT with a
    /// precondition may receive a 412, because the other attempt has already taken effect. A cancelled PUT may take
    /// effect after the caller's next PUT.
    ///
    /// # Default
    ///
    /// No request: only GET, HEAD, OPTIONS, TRACE and QUERY are hedged.
    ///
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
    ///     .http()
    ///     .hedge_unsafe_if(|request| request.path() == "/search") // a POST that only reads
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
    /// service.oneshot(Request::post("/search").body(Empty::<Bytes>::new())?).await?;
    /// assert_eq!(attempts.load(Relaxed), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hedge_unsafe_if(
        self,
        rule: impl Fn(RequestHead<'_>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.rule(|settings| settings.hedge_unsafe_if = Some(Arc::new(rule)))
    }
}
