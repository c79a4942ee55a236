use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{CallFuture, Calls, LimitError, RateLimited};
use crate::{
    Decided, NoObserver, Observer, Rejection,
    http::tell_delay,
    key::KeySink,
    limits::{Applies, Outcome, Question, Short},
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

impl<Req> Calls<Req> {
    #[inline]
    fn decide_shortly<O: Observer>(
        &self,
        request: &Req,
        observer: &O,
        question: &mut Option<Question>,
    ) -> Short<()> {
        let Some((rule, look)) = self.only() else {
            return Short::Unfit;
        };
        let look = |sink: &mut KeySink| match look.at(request, rule, sink) {
            Applies::To { key, cost, .. } => Ok((key, cost)),
            applies => Err(Short::unasked(&applies)),
        };
        self.limits
            .decide_shortly(rule, observer, question, look, |_| ())
    }

    /// What an outcome means, told to the observer.
    pub(crate) fn rule<O: Observer>(
        &self,
        reason: Option<crate::Reason>,
        question: &Question,
        observer: &O,
    ) -> Result<(), RateLimited> {
        let Some(reason) = reason else {
            observer.allowed(&Decided::new(&self.limits, question));
            tell_delay(observer, question);
            return Ok(());
        };
        let rejection = Rejection::new(&self.limits, question, reason);
        if self.shadow {
            observer.shadowed(&rejection);
            return Ok(());
        }
        observer.rejected(&rejection);
        Err(RateLimited::new(&rejection))
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
        // Here to stay, because moving it takes longer than deciding.
        let mut question = None;
        let short = self
            .calls
            .decide_shortly(&request, &self.observer, &mut question);
        if let Short::Pass(()) = short {
            return CallFuture::calling(self.inner.call(request));
        }
        self.go_on(short, question.get_or_insert_with(Question::new), request)
    }
}

impl<S, Req, O> CallLimit<S, Req, O>
where
    S: Service<Req> + Clone,
    O: Observer + Clone,
{
    /// The long way, from where the shortest one ends; apart, so that callers have that one in line.
    #[inline(never)]
    fn go_on(
        &mut self,
        short: Short<()>,
        question: &mut Question,
        request: Req,
    ) -> CallFuture<S, Req, O> {
        let Self {
            inner,
            calls,
            observer,
        } = self;
        let limits = &calls.limits;
        let outcome = match short {
            Short::Else(answer, leave) => limits.outcome(question, answer, leave, observer),
            Short::Unasked(outcome) => outcome,
            _ => limits.decide(question, observer, calls.look(&request)),
        };
        let reason = match outcome {
            Outcome::Pass => None,
            Outcome::Reject(reason) => Some(reason),
            Outcome::Later(waiting) => {
                let unready = inner.clone();
                return CallFuture::deciding(
                    waiting,
                    mem::take(question),
                    mem::replace(inner, unready),
                    request,
                    Arc::clone(calls),
                    observer.clone(),
                );
            }
        };
        let delay = calls.delay(question);
        match calls.rule(reason, question, observer) {
            Ok(()) if delay.is_zero() => CallFuture::calling(inner.call(request)),
            Ok(()) => {
                let unready = inner.clone();
                *inner = unready.clone();
                CallFuture::delayed(delay, unready, request)
            }
            Err(rejected) => {
                *inner = inner.clone();
                CallFuture::rejected(rejected)
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
