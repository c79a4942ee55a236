use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tower_service::Service;

use super::{Calls, LimitError, RateLimited};
use crate::{
    Rejection,
    delayed::Delayed,
    limits::{Outcome, Question},
    observe::Undecided,
};

/// The response of a [`CallLimit`](super::CallLimit) service.
///
/// # Cancel safety
///
/// Dropping the future drops the inner call, or the wait for the backend together with the ready inner service. Charged
/// tokens stay charged.
///
/// # Panics
///
/// Panics if polled again after it was ready.
#[pin_project]
pub struct CallFuture<S: Service<Req>, Req> {
    #[pin]
    pub(super) state: State<S, Req>,
}

#[pin_project(project = StateProjection)]
pub(super) enum State<S: Service<Req>, Req> {
    Calling(#[pin] S::Future),
    /// Boxed, because only leaky queues use it.
    Delayed(Box<Delayed<S, Req>>),
    /// Boxed, because only remote backends use it.
    Deciding(Box<PendingCall<S, Req>>),
    RateLimited(Option<RateLimited>),
}

/// A request that waits for a remote backend or a quota look-up.
pub(super) struct PendingCall<S, Req> {
    question: Question,
    /// The instance of the inner service that was ready for the request.
    inner: S,
    calls: Arc<Calls<Req>>,
    /// `None` after the decision.
    request: Option<Req>,
    undecided: Undecided,
}

impl<S: Service<Req> + Clone, Req> PendingCall<S, Req> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, Req>> {
        let Self {
            question,
            inner,
            calls,
            request,
            undecided,
        } = self;
        let limits = &calls.limits;
        let outcome = ready!(limits.poll(question, cx));
        undecided.0 = None;
        let outcome = limits.tell(outcome, question);
        let request = request.take().expect("polled again after a panic");
        Poll::Ready(go_on(inner, calls, outcome, question, request))
    }
}

/// Acts on an outcome: calls the ready inner service, rejects, delays, or waits for the decision. Not inlined, because
/// `call` handles the frequent case itself.
#[inline(never)]
pub(super) fn go_on<S: Service<Req> + Clone, Req>(
    inner: &mut S,
    calls: &Arc<Calls<Req>>,
    outcome: Outcome,
    question: &mut Question,
    request: Req,
) -> State<S, Req> {
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
            let unready = inner.clone();
            State::Deciding(Box::new(PendingCall {
                question: mem::take(question),
                inner: mem::replace(inner, unready),
                calls: Arc::clone(calls),
                request: Some(request),
                undecided: Undecided(Some(limits.watch.clone())),
            }))
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
                    State::Calling(inner)
                }
                StateProjection::Deciding(deciding) => ready!(deciding.poll(cx)),
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
        f.write_str(match self.state {
            State::Calling(_) => "CallFuture(calling)",
            State::Delayed(_) => "CallFuture(delayed)",
            State::Deciding(_) => "CallFuture(deciding)",
            State::RateLimited(_) => "CallFuture(rejected)",
        })
    }
}
