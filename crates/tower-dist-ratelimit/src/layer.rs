mod builder;

use std::{fmt, sync::Arc};

use tower_layer::Layer;

pub use builder::RateLimitLayerBuilder;

use crate::{ProblemJson, RateLimit, backend::Backend, limits::Limits};

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
pub struct RateLimitLayer<R = ProblemJson> {
    limits: Arc<Limits>,
    refuse: R,
}

impl RateLimitLayer {
    /// A layer over this store.
    pub fn builder(backend: impl Backend) -> RateLimitLayerBuilder {
        RateLimitLayerBuilder::new(Arc::new(backend))
    }
}

impl<S, R: Clone> Layer<S> for RateLimitLayer<R> {
    type Service = RateLimit<S, R>;

    fn layer(&self, inner: S) -> Self::Service {
        RateLimit::new(inner, Arc::clone(&self.limits), self.refuse.clone())
    }
}

impl<R: Clone> Clone for RateLimitLayer<R> {
    fn clone(&self) -> Self {
        Self {
            limits: Arc::clone(&self.limits),
            refuse: self.refuse.clone(),
        }
    }
}

impl<R> fmt::Debug for RateLimitLayer<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies: Vec<_> = self.limits.rules.iter().map(|rule| &rule.policy).collect();
        f.debug_struct("RateLimitLayer")
            .field("policies", &policies)
            .finish_non_exhaustive()
    }
}
