use std::{
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use tokio::runtime::Handle;
use tower_service::Service;

use super::{
    ThrottleFuture, ThrottleLayer,
    future::State,
    turn::{can_pass, turn},
};
use crate::{
    LimitError,
    limits::{Outcome, Question},
};

/// A service whose requests wait for their turn, from [`ThrottleLayer`](super::ThrottleLayer).
///
/// It is always ready. A call clones the inner service, waits for its turn, makes the clone ready, and calls it. If the
/// clone's readiness fails, the call fails with that error.
pub struct Throttle<S, Req> {
    pub(super) inner: S,
    pub(super) layer: ThrottleLayer<Req>,
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
        let ThrottleLayer { calls, lines } = &self.layer;
        let limits = &calls.limits;
        let mut question = Question::default();
        let outcome = match limits.prepare(&mut question, calls.look(&request)) {
            Err(reason) => Some(Outcome::Reject(reason)),
            Ok(_) if lines.any() && !limits.shadow && can_pass(limits, &question) => None,
            Ok(_) => Some(limits.ask(&mut question)),
        };
        let decided = match outcome {
            Some(pass @ Outcome::Pass { .. }) if question.delay().is_zero() => {
                limits.admit(pass, &question).map(|()| question)
            }
            outcome => {
                let turn = turn(Arc::clone(limits), Arc::clone(lines), question, outcome);
                let mut turn = Box::pin(turn);
                // The first poll takes the place in the line, so that requests pass in the order of their calls. This poll
                // needs the runtime's timer. Outside of a runtime, the caller's first poll takes the place.
                let first = match Handle::try_current() {
                    Ok(_) => turn.as_mut().poll(&mut Context::from_waker(Waker::noop())),
                    Err(_) => Poll::Pending,
                };
                match first {
                    Poll::Ready(decided) => decided,
                    Poll::Pending => {
                        let call = Some((self.inner.clone(), request));
                        let limits = Arc::clone(limits);
                        let state = State::Waiting { turn, limits, call };
                        return ThrottleFuture { state };
                    }
                }
            }
        };
        ThrottleFuture {
            state: State::decided(decided, limits, self.inner.clone(), request),
        }
    }
}

impl<S: Clone, Req> Clone for Throttle<S, Req> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
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
