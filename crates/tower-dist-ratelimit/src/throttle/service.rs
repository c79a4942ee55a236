use std::{
    fmt,
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use tokio::time::Instant;
use tower_service::Service;

use super::{
    ThrottleFuture,
    future::State,
    lines::Lines,
    turn::{Turn, can_pass},
};
use crate::{
    LimitError,
    call::Calls,
    limits::{Outcome, Question},
};

/// A service whose requests wait for their turn, from [`ThrottleLayer`](super::ThrottleLayer).
///
/// It is always ready. A call clones the inner service, waits for its turn, makes the clone ready, and calls it. If the
/// clone's readiness fails, the call fails with that error.
pub struct Throttle<S, Req> {
    pub(super) inner: S,
    pub(super) calls: Arc<Calls<Req>>,
    pub(super) lines: Arc<Lines>,
    pub(super) max_wait: Duration,
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
        let limits = &self.calls.limits;
        let mut question = Question::default();
        let outcome = match limits.prepare(&mut question, self.calls.look(&request)) {
            Err(reason) => Some(Outcome::Reject(reason)),
            Ok(_) if self.lines.any() && !limits.shadow && can_pass(limits, &question) => None,
            Ok(_) => Some(limits.ask(&mut question)),
        };
        let decided = if let Some(Outcome::Pass(())) = outcome
            && question.delay().is_zero()
        {
            limits
                .admit(Outcome::Pass(()), &question)
                .map(|()| question)
        } else {
            let turn = Turn {
                limits: Arc::clone(limits),
                lines: Arc::clone(&self.lines),
                question,
                end: Instant::now() + self.max_wait,
                place: None,
            };
            let mut turn = Box::pin(turn.run(outcome));
            // The first poll takes the place in the line, so that requests pass in the order of their calls.
            match turn.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
                Poll::Ready(decided) => decided,
                Poll::Pending => {
                    let (limits, call) = (Arc::clone(limits), Some((self.inner.clone(), request)));
                    let state = State::Waiting { turn, limits, call };
                    return ThrottleFuture { state };
                }
            }
        };
        let state = match decided {
            Ok(question) => {
                let (limits, inner) = (Arc::clone(limits), self.inner.clone());
                State::readying(limits, question, inner, request)
            }
            Err(rejected) => State::RateLimited(Some(rejected)),
        };
        ThrottleFuture { state }
    }
}

impl<S: Clone, Req> Clone for Throttle<S, Req> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            calls: Arc::clone(&self.calls),
            lines: Arc::clone(&self.lines),
            max_wait: self.max_wait,
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
