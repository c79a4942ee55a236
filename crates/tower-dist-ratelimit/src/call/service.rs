use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    CallFuture, Calls, LimitError, RateLimited,
    future::{PendingCall, State},
};
use crate::{
    Rejection,
    delayed::Delayed,
    limits::{Outcome, Question},
    observe::Undecided,
};

/// A service behind rate limits, from [`CallLimitLayer`](super::CallLimitLayer).
///
/// It is ready when the inner service is. A rejection is an error of the call, not of readiness. A rejected call
/// replaces the ready inner service with a clone, which releases any permit that it holds.
pub struct CallLimit<S, Req> {
    inner: S,
    pub(super) calls: Arc<Calls<Req>>,
}

impl<S, Req> CallLimit<S, Req> {
    pub(super) fn new(inner: S, calls: Arc<Calls<Req>>) -> Self {
        Self { inner, calls }
    }
}

impl<S, Req> Service<Req> for CallLimit<S, Req>
where
    S: Service<Req, Error: 'static> + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = CallFuture<S, Req>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LimitError::Inner)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        let Self { inner, calls } = self;
        // Filled in place: moving it costs more than the decision.
        let mut question = Question::default();
        let outcome = calls.limits.decide(&mut question, calls.look(&request));
        let state = match outcome {
            Outcome::Pass { .. } if calls.limits.delay(&question).is_zero() => {
                State::Calling(inner.call(request))
            }
            outcome => self.go_on(outcome, &mut question, request),
        };
        CallFuture { state }
    }
}

impl<S: Service<Req> + Clone, Req> CallLimit<S, Req> {
    /// Acts on an outcome: calls the ready inner service, rejects, delays, or waits for the decision. Not inlined, so
    /// that a call inlines only the first of them.
    #[inline(never)]
    pub(super) fn go_on(
        &mut self,
        outcome: Outcome,
        question: &mut Question,
        request: Req,
    ) -> State<S, Req> {
        let Self { inner, calls } = self;
        let limits = &calls.limits;
        match outcome {
            Outcome::Pass { .. } => {
                let delay = limits.delay(question);
                if delay.is_zero() {
                    return State::Calling(inner.call(request));
                }
                // Dropping the ready service releases any permit that it holds.
                let unready = inner.clone();
                *inner = unready.clone();
                State::Delayed(Box::new(Delayed::new(delay, unready, request)))
            }
            Outcome::Reject(reason) => {
                *inner = inner.clone();
                let rejection = Rejection::new(&limits.rules, question, reason);
                State::RateLimited(Some(RateLimited::new(&rejection)))
            }
            Outcome::Later => {
                let undecided = Undecided(Some(limits.watch.clone()));
                let mut service = self.clone();
                mem::swap(&mut service.inner, &mut self.inner);
                State::Deciding(Box::new(PendingCall {
                    question: mem::take(question),
                    service,
                    request: Some(request),
                    undecided,
                }))
            }
        }
    }
}

impl<S: Clone, Req> Clone for CallLimit<S, Req> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            calls: Arc::clone(&self.calls),
        }
    }
}

impl<S: fmt::Debug, Req> fmt::Debug for CallLimit<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
