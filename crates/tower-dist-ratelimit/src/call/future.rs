use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pin_project::pin_project;
use tower_service::Service;

use super::{Calls, LimitError, RateLimited};
use crate::{
    delayed::Delayed,
    limits::{Outcome, Question, Waiting},
    observe::Undecided,
};

/// The response of a [`CallLimit`](super::CallLimit) service.
///
/// # Cancel safety
///
/// Dropping it drops the inner call, or the wait for the backend together with the ready inner service. Charged tokens
/// stay charged.
///
/// # Panics
///
/// Panics if polled again after it was ready.
#[pin_project]
pub struct CallFuture<S: Service<Req>, Req> {
    #[pin]
    state: State<S, Req>,
}

#[pin_project(project = StateProjection)]
enum State<S: Service<Req>, Req> {
    Calling(#[pin] S::Future),
    /// Boxed, because only leaky queues use it.
    Delayed(Box<Delayed<S, Req>>),
    /// Boxed, because only remote backends use it.
    Deciding(Option<Box<Deciding<S, Req>>>),
    RateLimited(Option<RateLimited>),
}

struct Deciding<S, Req> {
    waiting: Waiting,
    question: Question,
    /// The service that was ready when the request arrived.
    ready: S,
    request: Req,
    calls: Arc<Calls<Req>>,
    undecided: Undecided,
}

impl<S: Service<Req>, Req> CallFuture<S, Req> {
    pub(super) fn calling(inner: S::Future) -> Self {
        Self {
            state: State::Calling(inner),
        }
    }

    pub(super) fn delayed(delay: Duration, unready: S, request: Req) -> Self {
        Self {
            state: State::Delayed(Box::new(Delayed::new(delay, unready, request))),
        }
    }

    pub(super) fn rejected(rejected: RateLimited) -> Self {
        Self {
            state: State::RateLimited(Some(rejected)),
        }
    }

    pub(super) fn deciding(
        waiting: Waiting,
        question: Question,
        ready: S,
        request: Req,
        calls: Arc<Calls<Req>>,
    ) -> Self {
        let deciding = Deciding {
            waiting,
            question,
            ready,
            request,
            undecided: Undecided(Some(calls.limits.watch.clone())),
            calls,
        };
        Self {
            state: State::Deciding(Some(Box::new(deciding))),
        }
    }
}

impl<S: Service<Req> + Clone, Req> Deciding<S, Req> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<()>> {
        let limits = &self.calls.limits;
        self.waiting.poll(limits, &mut self.question, cx)
    }

    fn decided(mut self, outcome: Outcome<()>) -> State<S, Req> {
        self.undecided.0 = None;
        let delay = self.calls.limits.delay(&self.question);
        match self.calls.limits.admit(outcome, &self.question) {
            Ok(()) if delay.is_zero() => State::Calling(self.ready.call(self.request)),
            Ok(()) => {
                // Dropping the ready service releases any permit that it holds.
                let unready = self.ready.clone();
                State::Delayed(Box::new(Delayed::new(delay, unready, self.request)))
            }
            Err(rejected) => State::RateLimited(Some(rejected)),
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
                StateProjection::Deciding(deciding) => {
                    let waiting = deciding.as_mut().expect("polled again after a panic");
                    let outcome = ready!(waiting.poll(cx));
                    let decided = deciding.take().expect("it was there a line above");
                    decided.decided(outcome)
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
        f.write_str(match self.state {
            State::Calling(_) => "CallFuture(calling)",
            State::Delayed(_) => "CallFuture(delayed)",
            State::Deciding(_) => "CallFuture(deciding)",
            State::RateLimited(_) => "CallFuture(rejected)",
        })
    }
}
