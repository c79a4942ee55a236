mod event;
mod facts;
#[cfg(feature = "metrics")]
mod metrics;
mod record;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::Arc;

pub use self::event::{
    AttemptEnded, AttemptOutcome, AttemptStarted, CallEnded, HedgeSkipped, RetryScheduled,
};
pub use self::facts::{CallInfo, DelaySource, LayerKind, RequestLine, SkipReason, StopReason};
#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
pub use self::record::{NoObserver, Observe, Observed, Record};
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;

/// Receives events from a retry or hedge layer.
///
/// Each method does nothing unless implemented. The layer calls it on the task that polls the call,
/// so it should return quickly. It may be called concurrently for different calls.
///
/// | event | when |
/// |---|---|
/// | [`attempt_started`](Self::attempt_started) | the layer sends an attempt, the first one included |
/// | [`attempt_ended`](Self::attempt_ended) | the attempt has an outcome, or the layer drops it; once per attempt |
/// | [`retry_scheduled`](Self::retry_scheduled) | an attempt failed and another one follows after a delay |
/// | [`hedge_skipped`](Self::hedge_skipped) | a hedge was due and is not sent |
/// | [`call_ended`](Self::call_ended) | the call succeeded, failed or was cancelled; exactly once per call |
///
/// An event of one call has the same [`CallInfo::id`] as the others of this call. A pair of observers is an observer
/// whose parts both receive each event, and an `Arc` of an observer is an observer, too.
///
/// ```
/// use std::sync::Arc;
/// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
/// use tower_attempt::{CallEnded, Observer, StopReason};
///
/// /// Counts the calls that failed after more than one attempt.
/// #[derive(Default)]
/// struct Failures(AtomicU32);
///
/// impl Observer for Failures {
///     fn call_ended(&self, event: &CallEnded<'_>) {
///         if event.reason != StopReason::Success && event.attempts > 1 {
///             self.0.fetch_add(1, Relaxed);
///         }
///     }
/// }
///
/// // `.observer(failures.clone())` on the builder of a layer.
/// let failures = Arc::new(Failures::default());
/// # let shared: Arc<dyn Observer> = failures.clone();
/// # drop(tower_attempt::Observed::new(shared));
/// assert_eq!(failures.0.load(Relaxed), 0);
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Whether the events need the request's method, path and authority. If not, the layer does not copy them.
    ///
    /// # Default
    ///
    /// `true`. The copy shares the memory of an `http::Request`. The URL of a `reqwest::Request` is parsed again.
    fn reads_request(&self) -> bool {
        true
    }

    /// The layer sends an attempt. The returned scope is entered whenever the attempt runs.
    fn attempt_started(&self, _event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        None
    }

    /// An attempt has an outcome, or the layer drops it.
    fn attempt_ended(&self, _event: &AttemptEnded<'_>) {}

    /// An attempt failed and another one follows after a delay.
    fn retry_scheduled(&self, _event: &RetryScheduled<'_>) {}

    /// A hedge was due and is not sent.
    fn hedge_skipped(&self, _event: &HedgeSkipped<'_>) {}

    /// The call succeeded, failed or was cancelled.
    fn call_ended(&self, _event: &CallEnded<'_>) {}
}

/// The context in which one attempt runs, such as a span.
///
/// The layer drops it when the attempt ends. A loser that [`Drain`] finishes in the background runs outside of it.
///
/// [`Drain`]: https://docs.rs/tower-hedge-latency/latest/tower_hedge_latency/struct.Drain.html
pub trait AttemptScope: Send + Sync + 'static {
    /// Runs `attempt`, which calls the inner service or polls its future. If this method does not, the
    /// layer does so afterwards.
    fn enter(&self, attempt: &mut dyn FnMut());

    /// The attempt has an outcome, or the layer drops it.
    fn end(&self, _event: &AttemptEnded<'_>) {}
}

/// Both observers receive each event.
impl<A: Observer, B: Observer> Observer for (A, B) {
    fn reads_request(&self) -> bool {
        self.0.reads_request() || self.1.reads_request()
    }

    fn attempt_started(&self, event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        match (self.0.attempt_started(event), self.1.attempt_started(event)) {
            (Some(outer), Some(inner)) => Some(Box::new((outer, inner))),
            (one, other) => one.or(other),
        }
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        self.0.attempt_ended(event);
        self.1.attempt_ended(event);
    }

    fn retry_scheduled(&self, event: &RetryScheduled<'_>) {
        self.0.retry_scheduled(event);
        self.1.retry_scheduled(event);
    }

    fn hedge_skipped(&self, event: &HedgeSkipped<'_>) {
        self.0.hedge_skipped(event);
        self.1.hedge_skipped(event);
    }

    fn call_ended(&self, event: &CallEnded<'_>) {
        self.0.call_ended(event);
        self.1.call_ended(event);
    }
}

impl AttemptScope for (Box<dyn AttemptScope>, Box<dyn AttemptScope>) {
    fn enter(&self, attempt: &mut dyn FnMut()) {
        self.0.enter(&mut || self.1.enter(attempt));
    }

    fn end(&self, event: &AttemptEnded<'_>) {
        self.0.end(event);
        self.1.end(event);
    }
}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn reads_request(&self) -> bool {
        (**self).reads_request()
    }

    fn attempt_started(&self, event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        (**self).attempt_started(event)
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        (**self).attempt_ended(event);
    }

    fn retry_scheduled(&self, event: &RetryScheduled<'_>) {
        (**self).retry_scheduled(event);
    }

    fn hedge_skipped(&self, event: &HedgeSkipped<'_>) {
        (**self).hedge_skipped(event);
    }

    fn call_ended(&self, event: &CallEnded<'_>) {
        (**self).call_ended(event);
    }
}
