use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_service::Service;

use super::{CallLimit, LimitError, RateLimited};
use crate::{
    delayed::Delayed,
    limits::{Check, Outcome, Pending},
};

/// The response of a [`CallLimit`](super::CallLimit) service.
///
/// # Cancel safety
///
/// Dropping the future drops the inner call, the wait in a leaky queue, or the wait for the backend. In the last case,
/// it also drops the ready inner service. Charged tokens stay charged.
///
/// # Panics
///
/// Can panic if polled again after it was ready. The call or the future panics if it needs a timer and no tokio runtime
/// with a timer is running.
#[pin_project]
pub struct CallFuture<S: Service<Req>, Req> {
    #[pin]
    pub(super) state: CallState<S, Req>,
}

#[pin_project(project = StateProjection)]
pub(super) enum CallState<S: Service<Req>, Req> {
    Calling(#[pin] S::Future),
    /// Boxed to keep the future small, because only leaky queues use this variant.
    Delayed(Box<Delayed<S, Req>>),
    Deciding(Box<Pending<CallLimit<S, Req>, Req>>),
    RateLimited(Option<RateLimited>),
}

impl<S, Req> CallLimit<S, Req> {
    /// Acts on an outcome: calls the ready inner service, rejects, delays, or waits for the decision. Not inlined,
    /// because `call` handles the frequent case itself.
    #[inline(never)]
    pub(super) fn handle_outcome(
        &mut self,
        outcome: Outcome,
        check: &mut Check,
        request: Req,
    ) -> CallState<S, Req>
    where
        S: Service<Req> + Clone,
    {
        let Self { inner, layer } = self;
        let limits = &layer.calls.limits;
        match outcome {
            Outcome::Pass { .. } => {
                let delay = limits.delay(check);
                if delay.is_zero() {
                    return CallState::Calling(inner.call(request));
                }
                // Dropping the ready service releases any permit that it holds.
                let unready = inner.clone();
                *inner = unready.clone();
                CallState::Delayed(Box::new(Delayed::new(delay, unready, request)))
            }
            Outcome::Reject(reason) => {
                *inner = inner.clone();
                let rejected = RateLimited::new(&limits.rules, check, reason);
                CallState::RateLimited(Some(rejected))
            }
            Outcome::Later => {
                let unready = self.clone();
                let ready = mem::replace(self, unready);
                let limits = &self.layer.calls.limits;
                CallState::Deciding(Pending::new(limits, check, ready, request))
            }
        }
    }
}

impl<S, Req> Future for CallFuture<S, Req>
where
    S: Service<Req, Error: 'static> + Clone,
{
    type Output = Result<S::Response, LimitError<S::Error>>;

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Calling(inner) => {
                    return inner
                        .poll(cx)
                        .map_err(|error| LimitError::Inner(error).known());
                }
                StateProjection::Delayed(delayed) => {
                    let inner = ready!(delayed.poll(cx))
                        .map_err(|error| LimitError::Inner(error).known())?;
                    CallState::Calling(inner)
                }
                StateProjection::Deciding(pending) => {
                    let (outcome, request) = ready!(pending.poll(cx));
                    let Pending { service, check, .. } = &mut **pending;
                    service.handle_outcome(outcome, check, request)
                }
                StateProjection::RateLimited(rejected) => {
                    let rejected = rejected.take().expect("polled again after it was ready");
                    return Poll::Ready(Err(LimitError::RateLimited(rejected).known()));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Req>, Req> fmt::Debug for CallFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallFuture").finish_non_exhaustive()
    }
}
