use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tower_attempt::Attempt;
use tower_service::Service;

use crate::SkipReason;
use crate::losers::Losers;

/// One hedge: first its own instance of the service, then its attempt.
pub(super) struct Hedge<S, H, Req> {
    pub(super) attempt: Attempt,
    state: State<S, H, Req>,
}

enum State<S, H, Req> {
    Readying(S, Option<Req>),
    /// Boxed, so that a call needs no room for hedges that it most likely never sends.
    Sent(Pin<Box<H>>),
}

/// The end of a hedge.
pub(super) enum End<T> {
    Answered(T),
    /// The hedge was never sent.
    Skipped(SkipReason),
}

impl<S, H, Req> Hedge<S, H, Req> {
    pub(super) fn new(attempt: Attempt, service: S, request: Req) -> Self {
        Self {
            attempt,
            state: State::Readying(service, Some(request)),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(self.state, State::Sent(_))
    }

    /// Returns the request once the hedge's service is ready; `None` if it never will be.
    ///
    /// The token is taken only then. A hedge whose service is never ready costs nothing, and blocks no token that
    /// another hedge or retry could use.
    pub(super) fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Option<Req>>
    where
        S: Service<Req>,
    {
        let State::Readying(service, next) = &mut self.state else {
            return Poll::Pending;
        };
        let is_ready = ready!(service.poll_ready(cx)).is_ok();
        Poll::Ready(next.take().filter(|_| is_ready))
    }

    /// Sends the request that [`poll_ready`](Self::poll_ready) returned.
    pub(super) fn send<L>(&mut self, request: Req, losers: &L)
    where
        S: Service<Req>,
        L: Losers<S::Future, Attempt = H>,
    {
        if let State::Readying(service, _) = &mut self.state {
            self.state = State::Sent(Box::pin(losers.hold(service.call(request))));
        }
    }

    /// Pending until it is sent.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<End<H::Output>>
    where
        H: Future,
    {
        match &mut self.state {
            State::Sent(future) => future.as_mut().poll(cx).map(End::Answered),
            State::Readying(..) => Poll::Pending,
        }
    }

    /// Disposes of this hedge, because another attempt won. Returns whether it was sent.
    pub(super) fn lose<F: Future, L: Losers<F, Attempt = H>>(mut self, losers: &L) -> bool {
        match &mut self.state {
            State::Sent(future) => losers.lose(future.as_mut()),
            State::Readying(..) => return false,
        }
        true
    }
}
