use std::sync::Arc;

use tower_attempt::Attempt;

/// Is told what a hedge layer does.
///
/// Every method does nothing unless implemented, and is called on the task that polls the call, so
/// it should be quick. Each call holds a clone of the observer: an `Arc` of one is one, too.
///
/// A call ends with exactly one of [`finished`](Self::finished) and [`cancelled`](Self::cancelled).
pub trait Observer {
    /// An attempt goes out; also the first one of each call.
    fn attempt_started(&self, _attempt: &Attempt) {}

    /// A hedge was due, but the budget had no token for it.
    fn hedge_denied(&self, _attempt: &Attempt) {}

    /// An attempt failed while others were in flight, or never got a ready service.
    fn attempt_failed(&self, _attempt: &Attempt) {}

    /// The call ended with the outcome of `winner`.
    fn finished(&self, _winner: &Attempt) {}

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

    fn hedge_denied(&self, attempt: &Attempt) {
        (**self).hedge_denied(attempt);
    }

    fn attempt_failed(&self, attempt: &Attempt) {
        (**self).attempt_failed(attempt);
    }

    fn finished(&self, winner: &Attempt) {
        (**self).finished(winner);
    }

    fn cancelled(&self) {
        (**self).cancelled();
    }
}
