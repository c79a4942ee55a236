#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::{sync::Arc, time::Duration};

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
use crate::{Decided, Rejection, backend::BackendError};

/// Receives the events of a rate limit.
///
/// `on_event` usually runs on the task of the request, so it should return quickly. It may run concurrently for
/// different requests. An `Arc` of an observer is an observer, too, and so is a pair of observers.
///
/// Each request normally causes exactly one of [`Allowed`](Event::Allowed), [`Rejected`](Event::Rejected),
/// [`Shadowed`](Event::Shadowed) and [`Cancelled`](Event::Cancelled). [Exempt](crate::RateLimitLayerBuilder::exempt)
/// requests, calls of [`Limiter::peek`](crate::Limiter::peek), checks with an invalid
/// [quota](crate::Limiter::with_quota), and checks that are never polled cause none of them.
///
/// # Cost
///
/// Without an observer, about one comparison per request.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// use tower_dist_ratelimit::{Event, Limiter, Observer, Policy, Quota, backend::Memory};
///
/// #[derive(Default)]
/// struct Rejections(AtomicU64);
///
/// impl Observer for Rejections {
///     fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
///         assert_eq!(&**name, "mails");
///         if let Event::Rejected(_) = event {
///             self.0.fetch_add(1, Relaxed);
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let rejections = Arc::new(Rejections::default());
/// let limiter = Limiter::builder(Memory::default(), Policy::new("all", Quota::per_hour(1)))
///     .name("mails")
///     .observer(Arc::clone(&rejections))
///     .build()?;
/// for _ in 0..3 {
///     limiter.check("alice").await?;
/// }
/// assert_eq!(rejections.0.load(Relaxed), 2);
/// # Ok(())
/// # }
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Receives an event of the limit with this name. The name is empty unless the builder's `name` sets it.
    fn on_event(&self, name: &Arc<str>, event: Event<'_>);
}

/// Both observers receive each event, the first observer first. An observer of a pair can be a pair itself.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
        self.0.on_event(name, event);
        self.1.on_event(name, event);
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
        (**self).on_event(name, event);
    }
}

/// An event that an [`Observer`] receives.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A request passes. The event has no decisions if no policy applies to the request.
    Allowed(Decided<'a>),
    /// A request is rejected.
    Rejected(Rejection<'a>),
    /// A request passes only because the limit is a [shadow](crate::RateLimitLayerBuilder::shadow). A limit that is
    /// enforced would reject the request, or make it wait in a [`Throttle`](crate::Throttle).
    Shadowed(Rejection<'a>),
    /// The backend failed or was late, a [quota look-up](crate::Policy::quota_by_async) was late, or the circuit
    /// breaker is open. [`FailureMode`](crate::FailureMode) decides on the request instead. Except for a
    /// [peek](crate::Limiter::peek), another event with the request's outcome follows.
    BackendFailed(&'a BackendError),
    /// The circuit breaker opened after too many failures. The event holds the error of the last failure. Until the
    /// circuit closes, new requests reach the backend only as probes.
    CircuitOpened(&'a BackendError),
    /// A probe succeeded and closed the circuit breaker.
    CircuitClosed,
    /// The wait of a request. A [`Throttle`](crate::Throttle) emits this event after the wait, when the request is
    /// admitted or rejected. For a [leaky queue](crate::Policy::leaky_queue), the event comes when the request is
    /// admitted, before its wait in the queue. A request that waits in a throttle and in a leaky queue causes two
    /// events. In [shadow](crate::RateLimitLayerBuilder::shadow) mode, the limit emits the event for a leaky queue, but
    /// the request does not wait.
    Waited(Duration),
    /// The caller dropped a request before the limit reported its decision.
    Cancelled,
}

/// The name of a limit and its observer.
#[derive(Clone, Default)]
pub(crate) struct Emitter {
    pub(crate) name: Arc<str>,
    pub(crate) observer: Option<Arc<dyn Observer>>,
}

impl Emitter {
    /// Returns the name for log lines, or `None` if the name is empty.
    #[cfg(feature = "tracing")]
    pub(crate) fn name(&self) -> Option<&str> {
        Some(&*self.name).filter(|name| !name.is_empty())
    }

    #[inline]
    pub(crate) fn emit<'a>(&self, event: impl FnOnce() -> Event<'a>) {
        if let Some(observer) = &self.observer {
            observer.on_event(&self.name, event());
        }
    }
}
