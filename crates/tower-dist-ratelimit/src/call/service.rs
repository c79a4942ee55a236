use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{CallFuture, Calls, LimitError, RateLimited};
use crate::{
    Rejection,
    limits::{Outcome, Question},
};

/// A service behind rate limits, from [`CallLimitLayer`](super::CallLimitLayer).
///
/// It is ready when the inner service is. A rejection is an error of the call, not of readiness. A rejected call
/// replaces the ready inner service with a clone, which releases any permit that it holds.
pub struct CallLimit<S, Req> {
    inner: S,
    calls: Arc<Calls<Req>>,
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
        // Built in place: moving it costs more than the decision.
        let mut question = None;
        let outcome = self.calls.decide(&mut question, &request);
        // Compared in place, because moving the question costs more than the decision.
        if let (Outcome::Pass(()), None) = (&outcome, &question) {
            return CallFuture::calling(self.inner.call(request));
        }
        self.go_on(outcome, question.unwrap_or_default(), request)
    }
}

impl<S, Req> CallLimit<S, Req>
where
    S: Service<Req> + Clone,
{
    /// Handles all outcomes but the fast path. Not inlined, so that callers inline only the fast path.
    #[inline(never)]
    fn go_on(
        &mut self,
        outcome: Outcome<()>,
        question: Question,
        request: Req,
    ) -> CallFuture<S, Req> {
        let Self { inner, calls } = self;
        match outcome {
            Outcome::Pass(()) => {
                let delay = calls.limits.delay(&question);
                if delay.is_zero() {
                    return CallFuture::calling(inner.call(request));
                }
                let unready = inner.clone();
                *inner = unready.clone();
                CallFuture::delayed(delay, unready, request)
            }
            Outcome::Reject(reason) => {
                *inner = inner.clone();
                let rejection = Rejection::new(&calls.limits.rules, &question, reason);
                CallFuture::rejected(RateLimited::new(&rejection))
            }
            Outcome::Later(waiting) => {
                let unready = inner.clone();
                let ready = mem::replace(inner, unready);
                let calls = Arc::clone(calls);
                CallFuture::deciding(waiting, question, ready, request, calls)
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
