use std::{
    fmt,
    task::{Context, Poll},
};

use tower_service::Service;

use super::{
    CallFuture, CallLimitLayer, LimitError, Rejecting,
    future::{State, go_on},
};
use crate::limits::{Outcome, Question};

/// A service behind rate limits, from [`CallLimitLayer`](super::CallLimitLayer).
///
/// The service is ready when the inner service is. A rejection is an error of the call, not of readiness. A rejected call
/// replaces the ready inner service with a clone, which releases any permit that it holds.
///
/// In the mode [`Waits`](crate::Waits) the service is always ready: see [`Throttle`](crate::Throttle).
pub struct CallLimit<S, Req, M = Rejecting> {
    pub(crate) inner: S,
    pub(crate) layer: CallLimitLayer<Req, M>,
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
        let Self { inner, layer } = self;
        let calls = &layer.calls;
        // Filled in place: moving it costs more than the decision.
        let mut question = Question::default();
        let outcome = calls.limits.decide(&mut question, calls.look(&request));
        let state = match outcome {
            Outcome::Pass { .. } if calls.limits.delay(&question).is_zero() => {
                State::Calling(inner.call(request))
            }
            outcome => go_on(inner, calls, outcome, &mut question, request),
        };
        CallFuture { state }
    }
}

impl<S: Clone, Req, M: Clone> Clone for CallLimit<S, Req, M> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, Req, M> fmt::Debug for CallLimit<S, Req, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
