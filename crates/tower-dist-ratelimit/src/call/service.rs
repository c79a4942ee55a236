use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{CallFuture, Calls, LimitError, RateLimited};
use crate::{
    NoObserver, Observer, Rejection,
    limits::{Outcome, Question},
};

/// A service behind rate limits, from [`CallLimitLayer`](super::CallLimitLayer).
///
/// It is ready when the inner service is. A rejection is an error of the call, never of readiness, and gives back what that
/// readiness held.
pub struct CallLimit<S, Req, O = NoObserver> {
    inner: S,
    calls: Arc<Calls<Req>>,
    observer: O,
}

impl<S, Req, O> CallLimit<S, Req, O> {
    pub(super) fn new(inner: S, calls: Arc<Calls<Req>>, observer: O) -> Self {
        Self {
            inner,
            calls,
            observer,
        }
    }
}

impl<S, Req, O> Service<Req> for CallLimit<S, Req, O>
where
    S: Service<Req, Error: 'static> + Clone,
    O: Observer + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = CallFuture<S, Req, O>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LimitError::Inner)
    }

    #[inline]
    fn call(&mut self, request: Req) -> Self::Future {
        // Built in place: moving it costs more than the decision.
        let mut question = None;
        let outcome = self.calls.decide(&mut question, &request, &self.observer);
        match (outcome, question) {
            (Outcome::Pass(()), None) => CallFuture::calling(self.inner.call(request)),
            (outcome, question) => self.go_on(outcome, question.unwrap_or_default(), request),
        }
    }
}

impl<S, Req, O> CallLimit<S, Req, O>
where
    S: Service<Req> + Clone,
    O: Observer + Clone,
{
    /// Apart, so that callers have the fast path in line.
    #[inline(never)]
    fn go_on(
        &mut self,
        outcome: Outcome<()>,
        question: Question,
        request: Req,
    ) -> CallFuture<S, Req, O> {
        let Self {
            inner,
            calls,
            observer,
        } = self;
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
                let (calls, observer) = (Arc::clone(calls), observer.clone());
                CallFuture::deciding(waiting, question, ready, request, calls, observer)
            }
        }
    }
}

impl<S: Clone, Req, O: Clone> Clone for CallLimit<S, Req, O> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            calls: Arc::clone(&self.calls),
            observer: self.observer.clone(),
        }
    }
}

impl<S: fmt::Debug, Req, O> fmt::Debug for CallLimit<S, Req, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
