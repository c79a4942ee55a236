use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_attempt::{Attempt, Budget};
use tower_service::Service;

use super::Outcome;
use crate::Observer;

/// One hedge: its own instance of the service, then its own attempt.
pub(super) struct Hedge<S: Service<Req>, Req> {
    pub(super) attempt: Attempt,
    state: State<S, Req>,
}

enum State<S: Service<Req>, Req> {
    Readying(S, Option<Req>),
    /// Boxed, since a call has no room for hedges that it most likely does not need.
    Sent(Pin<Box<S::Future>>),
}

impl<S: Service<Req>, Req> Hedge<S, Req> {
    pub(super) fn new(attempt: Attempt, service: S, request: Req) -> Self {
        Self {
            attempt,
            state: State::Readying(service, Some(request)),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent(_))
    }

    /// The attempt's outcome; `None` if it is not sent at all.
    ///
    /// Its token is taken when its service is ready: one that never gets ready costs nothing, and
    /// keeps none from hedges and retries that could be sent.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        budget: &Budget,
        observer: &impl Observer,
    ) -> Poll<Option<Outcome<S, Req>>> {
        if let State::Readying(service, next) = &mut self.state {
            if ready!(service.poll_ready(cx)).is_err() {
                observer.attempt_failed(&self.attempt);
                return Poll::Ready(None);
            }
            let Some(permit) = budget.withdraw() else {
                observer.hedge_denied(&self.attempt);
                return Poll::Ready(None);
            };
            let Some(request) = next.take() else {
                return Poll::Ready(None);
            };
            permit.spend();
            observer.attempt_started(&self.attempt);
            self.state = State::Sent(Box::pin(service.call(request)));
        }
        match &mut self.state {
            State::Sent(future) => future.as_mut().poll(cx).map(Some),
            State::Readying(..) => Poll::Pending,
        }
    }
}
