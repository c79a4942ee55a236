#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::Arc;
use std::time::Duration;

use tower_attempt::Attempt;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;

/// Is told what a retry layer does.
///
/// Every method does nothing unless implemented, and is called on the task that polls the call, so
/// it should be quick. Each call holds a clone of the observer: an `Arc` of one is one, too.
///
/// A call ends with exactly one of [`stopped`](Self::stopped) and [`cancelled`](Self::cancelled).
pub trait Observer {
    /// An attempt goes out; also the first one of each call.
    fn attempt_started(&self, _attempt: &Attempt) {}

    /// `attempt` failed, and the next one follows after `delay`.
    fn retry_scheduled(&self, _attempt: &Attempt, _delay: Duration, _source: DelaySource) {}

    /// `attempt` failed, and the next one would follow after `delay`, if the layer did more than count:
    /// [`Mode::Shadow`](crate::Mode::Shadow).
    fn retry_shadowed(&self, _attempt: &Attempt, _delay: Duration, _source: DelaySource) {}

    /// The call ended with the outcome of `attempt`.
    fn stopped(&self, _attempt: &Attempt, _reason: StopReason) {}

    /// The caller dropped the call during `attempt` or the wait after it.
    fn cancelled(&self, _attempt: &Attempt) {}
}

/// Observes nothing, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn attempt_started(&self, attempt: &Attempt) {
        (**self).attempt_started(attempt);
    }

    fn retry_scheduled(&self, attempt: &Attempt, delay: Duration, source: DelaySource) {
        (**self).retry_scheduled(attempt, delay, source);
    }

    fn retry_shadowed(&self, attempt: &Attempt, delay: Duration, source: DelaySource) {
        (**self).retry_shadowed(attempt, delay, source);
    }

    fn stopped(&self, attempt: &Attempt, reason: StopReason) {
        (**self).stopped(attempt, reason);
    }

    fn cancelled(&self, attempt: &Attempt) {
        (**self).cancelled(attempt);
    }
}

/// Where a delay comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelaySource {
    /// The layer's backoff.
    Backoff,
    /// The user's rule, such as a closure given to `backoff_by`.
    Custom,
    /// The server's hint, or the wait that a layer below names when it rejects a request.
    Server,
    /// No delay: there is proof that the server did not process the attempt, for the first time in
    /// this call.
    Unprocessed,
}

/// Why a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StopReason {
    /// The outcome is a success.
    Success,
    /// The outcome is a failure that a repeat would not mend, or must not follow.
    Fatal,
    /// No attempts are left.
    AttemptsExhausted,
    /// There is no copy of the request: its kind is never repeated, or its body is too long.
    NotRepeatable,
    /// The server asks not to be asked again.
    ServerRefused,
    /// The server asks for a longer wait than the layer is willing to make.
    HintTooLong,
    /// The next attempt would go out after the [`Deadline`](crate::Deadline), or later than
    /// [`retry_until`](crate::RetryLayerBuilder::retry_until) allows; or the call's
    /// [`deadline`](crate::RetryLayerBuilder::deadline) ended it.
    DeadlineExceeded,
    /// The budget has no token.
    BudgetExhausted,
    /// The inner service failed to become ready for the next attempt.
    NotReady,
    /// Another retry layer, above or below, sees to this request.
    Nested,
    /// It would have been repeated, but the layer only counts: [`Mode::Shadow`](crate::Mode::Shadow).
    Shadow,
    /// Retries are switched off: [`Mode::Off`](crate::Mode::Off).
    Off,
}

impl StopReason {
    /// Whether the request was repeated as often as is right, so that a layer above should not repeat
    /// it either.
    pub(crate) fn is_in_vain(self) -> bool {
        match self {
            Self::AttemptsExhausted
            | Self::ServerRefused
            | Self::HintTooLong
            | Self::DeadlineExceeded
            | Self::BudgetExhausted
            | Self::Nested => true,
            Self::Success
            | Self::Fatal
            | Self::NotRepeatable
            | Self::NotReady
            | Self::Shadow
            | Self::Off => false,
        }
    }
}
