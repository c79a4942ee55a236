use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_attempt::{Attempt, Permit};
use tower_service::Service;

use super::Outcome;
use crate::Observer;

/// One hedge: its own instance of the service, then its own attempt.
pub(super) struct Hedge<S: Service<Req>, Req> {
    pub(super) attempt: Attempt,
    state: State<S, Req>,
}

enum State<S: Service<Req>, Req> {
    /// The permit goes back to the budget if the service never gets ready.
    Readying(S, Option<(Req, Permit)>),
    /// Boxed, since a call has no room for hedges that it most likely does not need.
    Sent(Pin<Box<S::Future>>),
}

impl<S: Service<Req>, Req> Hedge<S, Req> {
    pub(super) fn new(attempt: Attempt, service: S, request: Req, permit: Permit) -> Self {
        Self {
            attempt,
            state: State::Readying(service, Some((request, permit))),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent(_))
    }

    /// The attempt's outcome; `None` if its service failed before it could be sent.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        observer: &impl Observer,
    ) -> Poll<Option<Outcome<S, Req>>> {
        if let State::Readying(service, next) = &mut self.state {
            if ready!(service.poll_ready(cx)).is_err() {
                return Poll::Ready(None);
            }
            let Some((request, permit)) = next.take() else {
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
