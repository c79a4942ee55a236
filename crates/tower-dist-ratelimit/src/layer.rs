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
/// Building the layer creates the state. All services of the layer, and all clones of the layer or of a service, share
/// the counts. Build two layers for separate counts.
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
    pub(crate) http: Arc<HttpLimits>,
    pub(crate) reject: R,
}

impl RateLimitLayer {
    /// Starts a layer that keeps its counts in this backend.
    pub fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new(Arc::new(backend))
    }
}

impl<R> RateLimitLayer<R> {
    /// Number of corrections that did not reach the backend, because it failed or timed out, or too many were in flight.
    ///
    /// See [`RateLimitHandle`](crate::RateLimitHandle).
    #[must_use]
    pub fn lost_corrections(&self) -> u64 {
        self.http.limits.lost_corrections()
    }

    /// Returns the unused tokens of [leases](crate::Consistency::Leased) before this instance shuts down. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases).
    ///
    /// # Errors
    ///
    /// Fails if the backend fails or times out.
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.http.limits.return_leases().await
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        RateLimit { inner, layer }
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("policies", &self.http.limits)
            .finish_non_exhaustive()
    }
}
