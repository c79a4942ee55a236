mod builder;
mod call_limits;
mod error;
mod future;
mod service;

use std::{fmt, sync::Arc};

use tower_layer::Layer;

pub(crate) use self::call_limits::CallLimits;
pub use self::{
    builder::{CallLimitLayerBuilder, Rejecting, Waits},
    error::{LimitError, RateLimited},
    future::CallFuture,
};
use crate::backend::{Backend, BackendError};
use crate::limits::Settings;

/// Limits the requests to a service. The requests can be of any type, such as jobs, messages or queries.
///
/// A rejection is the error [`LimitError::RateLimited`], with its reason and, if known, the time until a retry. Errors
/// of the inner service are in [`LimitError::Inner`]. If requests should wait instead, call
/// [`waiting`](CallLimitLayerBuilder::waiting) on the builder.
///
/// All services of the layer and their clones share the counts.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{CallLimitLayer, LimitError, Policy, Quota, backend::Memory};
///
/// struct Query { user: u64 }
///
/// let layer = CallLimitLayer::builder(Memory::default())
///     .limit(Policy::new("per-user", Quota::per_second(1)).by_request(|query: &Query| query.user))
///     .build()?;
/// let service = layer.layer(service_fn(async |_: Query| Ok::<_, std::io::Error>("rows")));
/// assert!(service.clone().oneshot(Query { user: 7 }).await.is_ok());
/// let Err(LimitError::RateLimited(rejected)) = service.oneshot(Query { user: 7 }).await else { panic!() };
/// assert!(rejected.retry_after().is_some());
/// # Ok(())
/// # }
/// ```
pub struct CallLimitLayer<Req, M = Rejecting> {
    pub(crate) calls: Arc<CallLimits<Req>>,
    pub(crate) mode: M,
}

impl<Req> CallLimitLayer<Req> {
    /// Returns a builder of a layer with this backend.
    pub fn builder(backend: impl Backend) -> CallLimitLayerBuilder<Req> {
        CallLimitLayerBuilder::new(Settings::new(backend))
    }
}

impl<Req, M> CallLimitLayer<Req, M> {
    /// Gives unused tokens of [leases](crate::Consistency::Leased) back to the backend, for a shutdown. See
    /// [`Limiter::return_leases`](crate::Limiter::return_leases) for the tokens that are not given back.
    ///
    /// # Errors
    ///
    /// With leases, fails if the backend fails or times out, or while the [circuit is open](crate::FailureMode).
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.calls.limits.return_leases().await
    }
}

impl<S, Req, M: Clone> Layer<S> for CallLimitLayer<Req, M> {
    type Service = CallLimit<S, Req, M>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        CallLimit { inner, layer }
    }
}

impl<Req, M: Clone> Clone for CallLimitLayer<Req, M> {
    fn clone(&self) -> Self {
        Self {
            calls: Arc::clone(&self.calls),
            mode: self.mode.clone(),
        }
    }
}

impl<Req, M: fmt::Debug> fmt::Debug for CallLimitLayer<Req, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimitLayer")
            .field("policies", &self.calls.limits)
            .field("mode", &self.mode)
            .finish()
    }
}

/// A service behind rate limits, from [`CallLimitLayer`].
///
/// In the mode [`Rejecting`], the service is ready when the inner service is. A rejection is an error of the call, not
/// of readiness.
///
/// | call | inner service |
/// |---|---|
/// | rejected | The call drops the ready instance, which releases any concurrency permit that the instance holds. A clone replaces the instance. |
/// | waits for the backend | The call keeps the ready instance, and the service continues with a clone. |
/// | waits in a [leaky queue](crate::Policy::leaky_queue) | The call drops the ready instance. When its turn comes, the call makes a clone ready. |
///
/// In the mode [`Waits`], the service is always ready: see [`Throttle`](crate::Throttle).
pub struct CallLimit<S, Req, M = Rejecting> {
    pub(crate) inner: S,
    pub(crate) layer: CallLimitLayer<Req, M>,
}

impl<S: Clone, Req, M: Clone> Clone for CallLimit<S, Req, M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, Req, M> fmt::Debug for CallLimit<S, Req, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
