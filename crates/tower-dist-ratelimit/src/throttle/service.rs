use std::{
    fmt,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{Gate, ThrottleFuture, turn::Turn};
use crate::LimitError;

/// A service whose requests wait for their turn, from [`ThrottleLayer`](super::ThrottleLayer).
///
/// Always ready. Each call clones the inner service and readies the clone when its turn has come; if that fails, so does
/// the call.
pub struct Throttle<S, Req> {
    inner: S,
    gate: Arc<Gate<Req>>,
}

impl<S, Req> Throttle<S, Req> {
    pub(super) fn new(inner: S, gate: Arc<Gate<Req>>) -> Self {
        Self { inner, gate }
    }
}

impl<S, Req> Service<Req> for Throttle<S, Req>
where
    S: Service<Req, Error: 'static> + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = ThrottleFuture<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let Self { inner, gate } = self;
        let turn = Turn::new(gate, &request);
        match turn.done() {
            None => {
                let gate = Arc::clone(gate);
                ThrottleFuture::waiting(turn, inner.clone(), request, gate)
            }
            Some(outcome) => match gate.calls.tell(outcome, &turn.question) {
                Ok(()) => {
                    let gate = Arc::clone(gate);
                    ThrottleFuture::readying(turn.question, inner.clone(), request, gate)
                }
                Err(rejected) => ThrottleFuture::rejected(rejected),
            },
        }
    }
}

impl<S: Clone, Req> Clone for Throttle<S, Req> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: Arc::clone(&self.gate),
        }
    }
}

impl<S: fmt::Debug, Req> fmt::Debug for Throttle<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttle")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
