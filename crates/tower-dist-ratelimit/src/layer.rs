mod builder;

use std::{fmt, sync::Arc};

use tower_layer::Layer;

pub use builder::RateLimitLayerBuilder;

use crate::{
    ProblemJson, RateLimit,
    backend::{Backend, BackendError},
    http::HttpLimits,
};

/// Limits the rate of HTTP requests to a service.
///
/// The state is made when the layer is built: every service that the layer makes, and every clone of the layer or of a
/// service, counts in the same buckets. Build two layers for two sets of buckets.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, backend::Memory, key};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("per-client", Quota::per_minute(600).burst(100)).by(key::header("x-api-key")))
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone)]
pub struct RateLimitLayer<R = ProblemJson> {
    http: Arc<HttpLimits>,
    reject: R,
}

impl RateLimitLayer {
    /// A layer over this store.
    pub fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new(Arc::new(backend))
    }
}

impl<R> RateLimitLayer<R> {
    /// How many corrections of charges have not reached the store, since it failed, was late, or had too many to make.
    ///
    /// See [`RateLimitHandle`](crate::RateLimitHandle).
    #[must_use]
    pub fn lost_corrections(&self) -> u64 {
        self.http.limits.lost_corrections()
    }

    /// Gives back what is left of [leases](crate::Consistency::Leased), when this instance is shut down. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases).
    ///
    /// # Errors
    ///
    /// If the store fails or is late.
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.http.limits.return_leases().await
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let http = Arc::clone(&self.http);
        RateLimit::new(inner, http, self.reject.clone())
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.http.limits)
            .finish_non_exhaustive()
    }
}
