use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_attempt::{Attempt, Budget};
use tower_service::Service;

use super::Outcome;
use crate::losers::Losers;
use crate::{Observer, SkipReason};

/// One hedge: its own instance of the service, then its own attempt.
pub(super) struct Hedge<S: Service<Req>, L: Losers<S::Future>, Req> {
    pub(super) attempt: Attempt,
    state: State<S, L, Req>,
}

enum State<S: Service<Req>, L: Losers<S::Future>, Req> {
    Readying(S, Option<Req>),
    /// Boxed, since a call has no room for hedges that it most likely does not need.
    Sent(Pin<Box<L::Attempt>>),
}

/// How a hedge ends.
pub(super) enum End<T> {
    Answered(T),
    /// It was not sent at all.
    Skipped(SkipReason),
}

impl<S: Service<Req>, L: Losers<S::Future>, Req> Hedge<S, L, Req> {
    pub(super) fn new(attempt: Attempt, service: S, request: Req) -> Self {
        Self {
            attempt,
            state: State::Readying(service, Some(request)),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent(_))
    }

    /// Its token is taken when its service is ready: one that never gets ready costs nothing, and
    /// keeps none from hedges and retries that could be sent.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        budget: &Budget,
        losers: &L,
        observer: &impl Observer,
    ) -> Poll<End<Outcome<S, Req>>> {
        if let State::Readying(service, next) = &mut self.state {
            if ready!(service.poll_ready(cx)).is_err() {
                return Poll::Ready(End::Skipped(SkipReason::NotReady));
            }
            let (Some(permit), Some(request)) = (budget.withdraw(), next.take()) else {
                return Poll::Ready(End::Skipped(SkipReason::Denied));
            };
            permit.spend();
            observer.attempt_started(&self.attempt);
            self.state = State::Sent(Box::pin(losers.hold(service.call(request))));
        }
        match &mut self.state {
            State::Sent(future) => future.as_mut().poll(cx).map(End::Answered),
            State::Readying(..) => Poll::Pending,
        }
    }

    /// Another attempt has won; whether this one was sent.
    pub(super) fn lose(mut self, losers: &L) -> bool {
        match &mut self.state {
            State::Sent(future) => losers.lose(future.as_mut()),
            State::Readying(..) => return false,
        }
        true
    }
}
