use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Gate, ThrottleFuture, turn::Turn};
use crate::{LimitError, NoObserver, Observer};

/// A service whose requests wait for their turn, from [`ThrottleLayer`](super::ThrottleLayer).
///
/// Always ready. Each call clones the inner service and readies the clone when its turn has come; if that fails, so does
/// the call.
pub struct Throttle<S, Req, O = NoObserver> {
    inner: S,
    gate: Arc<Gate<Req>>,
    observer: O,
}

impl<S, Req, O> Throttle<S, Req, O> {
    pub(super) fn new(inner: S, gate: Arc<Gate<Req>>, observer: O) -> Self {
        Self {
            inner,
            gate,
            observer,
        }
    }
}

impl<S, Req, O> Service<Req> for Throttle<S, Req, O>
where
    S: Service<Req, Error: 'static> + Clone,
    O: Observer + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = ThrottleFuture<S, Req, O>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let Self {
            inner,
            gate,
            observer,
        } = self;
        let turn = Turn::new(gate, &request, observer);
        match turn.done() {
            None => {
                let (gate, observer) = (Arc::clone(gate), observer.clone());
                ThrottleFuture::waiting(turn, inner.clone(), request, gate, observer)
            }
            Some(outcome) => match gate.calls.tell(outcome, &turn.question, observer) {
                Ok(()) => {
                    let gate = Arc::clone(gate);
                    ThrottleFuture::readying(turn.question, inner.clone(), request, gate)
                }
                Err(rejected) => ThrottleFuture::rejected(rejected),
            },
        }
    }
}

impl<S: Clone, Req, O: Clone> Clone for Throttle<S, Req, O> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: Arc::clone(&self.gate),
            observer: self.observer.clone(),
        }
    }
}

impl<S: fmt::Debug, Req, O> fmt::Debug for Throttle<S, Req, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
