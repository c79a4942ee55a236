mod builder;
mod future;

use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_layer::Layer;
use tower_service::Service;

pub use self::{builder::RateLimitLayerBuilder, future::ResponseFuture};
use crate::{
    ProblemJson, RejectionResponse, backend::BackendError, http::HttpLimits, limits::Check,
};

/// Limits the rate of HTTP requests to a service.
///
/// The layer's backend keeps the counts. All services of the layer, and all clones of the layer or of a service, share
/// the counts. For separate counts, build a second layer whose policies have other names.
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

impl<R> RateLimitLayer<R> {
    /// Returns the number of lost corrections. A correction is a charge or refund that the layer sends to the backend
    /// after a decision. See [`RateLimitHandle`](crate::RateLimitHandle).
    ///
    /// A correction counts as lost if the backend fails or times out, the [circuit is open](crate::FailureMode), or
    /// 1024 corrections are in flight. With a remote backend, a correction outside of a tokio runtime usually counts as
    /// lost, too.
    #[must_use]
    pub fn lost_corrections(&self) -> u64 {
        self.http.limits.guard.lost_corrections()
    }

    /// Gives unused tokens of [leases](crate::Consistency::Leased) back to the backend, for a shutdown. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases).
    ///
    /// # Errors
    ///
    /// With leases, fails if the backend fails or times out, or while the [circuit is open](crate::FailureMode).
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

/// A rate-limited HTTP service, from [`RateLimitLayer`](crate::RateLimitLayer).
///
/// The service is ready when the inner service is. A rejection is a response, so all errors come from the inner
/// service.
///
/// | request | inner service |
/// |---|---|
/// | rejected | The service drops the ready instance and continues with a clone. The drop releases any concurrency permit of that instance. |
/// | waits for the backend or a [quota look-up](crate::Policy::quota_by_async) | The request keeps the ready instance, and the service continues with a clone. |
/// | waits in a [leaky queue](crate::Policy::leaky_queue) | The service drops the ready instance. The request makes a clone ready when its turn comes. |
///
/// # Cost
///
/// With [`Memory`](crate::backend::Memory), a layer with a single policy usually decides without a lock if the policy
/// is
/// - a bucket without [dynamic quotas](crate::Policy::dynamic_quotas), or
/// - a fixed window other than [`fixed_window_from_first_request`](crate::Policy::fixed_window_from_first_request).
///
/// If such a layer also adds no `RateLimit` headers, an allowed request usually takes no allocation.
#[derive(Clone)]
pub struct RateLimit<S, R = ProblemJson> {
    inner: S,
    layer: RateLimitLayer<R>,
}

impl<S, R, B, ResBody> Service<Request<B>> for RateLimit<S, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, R, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Filled in place, because a `Check` is large.
        let mut check = Check::default();
        let outcome = self.layer.http.decide(&mut check, &request);
        ResponseFuture {
            state: self.handle_outcome(outcome, &mut check, request),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
