#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::sync::Arc;

use tower_attempt::Attempt;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;

/// Is told what a hedge layer does.
///
/// Every method does nothing unless implemented, and is called on the task that polls the call, so
/// it should be quick. Each call holds a clone of the observer: an `Arc` of one is one, too.
///
/// A call ends with exactly one of [`finished`](Self::finished) and [`cancelled`](Self::cancelled).
pub trait Observer {
    /// An attempt goes out; also the first one of each call.
    fn attempt_started(&self, _attempt: &Attempt) {}

    /// A hedge was due, but is not sent.
    fn hedge_skipped(&self, _attempt: &Attempt, _reason: SkipReason) {}

    /// An attempt failed while others were in flight or follow.
    fn attempt_failed(&self, _attempt: &Attempt) {}

    /// The call ended: with the success of `winner`, or without one, when no attempt succeeded.
    fn finished(&self, _winner: Option<&Attempt>) {}

    /// The caller dropped the call.
    fn cancelled(&self) {}
}

/// Observes nothing, at no cost.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoObserver;

impl Observer for NoObserver {}

impl<T: Observer + ?Sized> Observer for Arc<T> {
    fn attempt_started(&self, attempt: &Attempt) {
        (**self).attempt_started(attempt);
    }

    fn hedge_skipped(&self, attempt: &Attempt, reason: SkipReason) {
        (**self).hedge_skipped(attempt, reason);
    }

    fn attempt_failed(&self, attempt: &Attempt) {
        (**self).attempt_failed(attempt);
    }

    fn finished(&self, winner: Option<&Attempt>) {
        (**self).finished(winner);
    }

    fn cancelled(&self) {
        (**self).cancelled();
    }
}

/// Why a hedge that was due is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SkipReason {
    /// The budget has no token.
    Denied,
    /// Fewer than 2 % of this class's last 200 hedges won, so only some are sent. If callers time out before hedges
    /// can win, [`max_delay`](crate::HedgeLayerBuilder::max_delay) helps.
    HeldBack,
    /// No instance of the service was ready before the call's deadline or end, or before a server asked to
    /// wait; or none will be.
    NotReady,
    /// The request can't be copied: its body is too long, or still streams with an error type that
    /// could not interrupt it, or its connection is about to become something else.
    NotRepeatable,
    /// The layer is set to [`Shadow`](crate::Mode::Shadow).
    Shadow,
}
