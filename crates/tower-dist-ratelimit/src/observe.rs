#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::Arc;
use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
use crate::{Decided, Rejection, backend::BackendError};

/// Is told what a limit decides.
///
/// Every method does nothing unless implemented, and is called on the task that makes the call, so it should be quick.
/// An `Arc` of an observer is one, too.
///
/// Each request is told of with exactly one of [`allowed`](Self::allowed), [`rejected`](Self::rejected),
/// [`shadowed`](Self::shadowed) and [`cancelled`](Self::cancelled); [`failed`](Self::failed) comes before one of the
/// first three. Requests that are [exempt](crate::RateLimitLayerBuilder::exempt) are not told of, nor is who only
/// [looks](crate::Limiter::peek).
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use std::sync::Arc;
/// use tower_dist_ratelimit::{Observer, Policy, Quota, RateLimitLayer, Rejection, backend::Memory};
///
/// #[derive(Default)]
/// struct Rejections(AtomicU64);
///
/// impl Observer for Rejections {
///     fn rejected(&self, _: &Rejection<'_>) {
///         self.0.fetch_add(1, Relaxed);
///     }
/// }
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("all", Quota::per_second(100)))
///     .observer(Arc::new(Rejections::default()))
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
pub trait Observer {
    /// A request passes; with the decisions on it, of which there are none if no policy applies. Their
    /// [source](crate::Decision::source) says who made them.
    fn allowed(&self, _decided: &Decided<'_>) {}

    /// A request is rejected.
    fn rejected(&self, _refusal: &Rejection<'_>) {}

    /// A request would have been rejected, or would have had to [wait](crate::Throttle), but passes, because the layer is a
    /// [shadow](crate::RateLimitLayerBuilder::shadow).
    fn shadowed(&self, _refusal: &Rejection<'_>) {}

    /// The store has not decided, or is not asked. What follows is up to [`FailureMode`](crate::FailureMode).
    fn failed(&self, _error: &BackendError) {}

    /// The store has failed too often, of late in this way, and is not asked any more but for one request at a time.
    fn circuit_opened(&self, _error: &BackendError) {}

    /// One of those requests was decided: the store is asked again.
    fn circuit_closed(&self) {}

    /// A request has waited for its turn this long in a [`Throttle`](crate::Throttle), and passes or is rejected now; or it passes
    /// and waits this long for its turn in a [leaky queue](crate::Policy::leaky_queue), or would if the layer were no shadow.
    fn waited(&self, _waited: Duration) {}

    /// The caller dropped a request before it was decided.
    fn cancelled(&self) {}
}

/// Observes nothing, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn allowed(&self, decided: &Decided<'_>) {
        (**self).allowed(decided);
    }

    fn rejected(&self, rejection: &Rejection<'_>) {
        (**self).rejected(rejection);
    }

    fn shadowed(&self, rejection: &Rejection<'_>) {
        (**self).shadowed(rejection);
    }

    fn failed(&self, error: &BackendError) {
        (**self).failed(error);
    }

    fn circuit_opened(&self, error: &BackendError) {
        (**self).circuit_opened(error);
    }

    fn circuit_closed(&self) {
        (**self).circuit_closed();
    }

    fn waited(&self, waited: Duration) {
        (**self).waited(waited);
    }

    fn cancelled(&self) {
        (**self).cancelled();
    }
}

/// Tells of a request that is dropped before it is decided.
pub(crate) struct Undecided<O: Observer>(Option<O>);

impl<O: Observer> Undecided<O> {
    pub(crate) fn new(observer: O) -> Self {
        Self(Some(observer))
    }

    pub(crate) fn observer(&self) -> &O {
        self.0.as_ref().expect("it leaves with the guard")
    }

    /// It is decided.
    pub(crate) fn decided(mut self) -> O {
        self.0.take().expect("it leaves with the guard")
    }
}

impl<O: Observer> Drop for Undecided<O> {
    fn drop(&mut self) {
        if let Some(observer) = &self.0 {
            observer.cancelled();
        }
    }
}
