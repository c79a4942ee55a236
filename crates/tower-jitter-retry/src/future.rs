mod call;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Sleep, sleep};
use tower_attempt::{Classify, Replays};
use tower_service::Service;

pub(crate) use self::call::{Call, Repeat};
use crate::{Observer, StopReason};

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// A call and its repeats; made by [`Retry`](crate::Retry).
///
/// # Cancel safety
///
/// Dropping it drops the attempt that is in flight or ends the wait for the next one. The token for
/// an attempt that was not sent yet goes back to the budget.
#[pin_project]
pub struct ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    #[pin]
    state: State<S::Future>,
    call: Call<S, C, R, O, Req>,
}

#[pin_project(project = StateProject)]
enum State<F> {
    Calling(#[pin] F),
    /// Boxed, since most calls never sleep: it keeps the future small.
    Sleeping(Pin<Box<Sleep>>),
    /// A zero sleep, without the millisecond that tokio's timer would make of it.
    Yielding,
    Readying,
    Done,
}

impl<F> State<F> {
    fn waiting(delay: Duration) -> Self {
        match delay {
            Duration::ZERO => Self::Yielding,
            delay => Self::Sleeping(Box::pin(sleep(delay))),
        }
    }
}

impl<S, C, R, O, Req> ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    pub(crate) fn new(first: S::Future, call: Call<S, C, R, O, Req>) -> Self {
        Self {
            state: State::Calling(first),
            call,
        }
    }
}

impl<S, C, R, O, Req> Future for ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    type Output = Outcome<S, Req>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            let next = match this.state.as_mut().project() {
                StateProject::Calling(attempt) => {
                    let outcome = ready!(attempt.poll(cx));
                    match this.call.after(&outcome) {
                        // The failed response is dropped here and its future with the state, so
                        // that the wait holds neither a connection nor a permit.
                        Ok(delay) => State::waiting(delay),
                        Err(reason) => {
                            this.call.stop(reason);
                            this.state.set(State::Done);
                            return Poll::Ready(outcome);
                        }
                    }
                }
                StateProject::Sleeping(sleep) => {
                    ready!(sleep.as_mut().poll(cx));
                    State::Readying
                }
                StateProject::Yielding => {
                    cx.waker().wake_by_ref();
                    this.state.set(State::Readying);
                    return Poll::Pending;
                }
                StateProject::Readying => match ready!(this.call.poll_send(cx)) {
                    Ok(attempt) => State::Calling(attempt),
                    Err(error) => {
                        this.call.stop(StopReason::NotReady);
                        this.state.set(State::Done);
                        return Poll::Ready(Err(error));
                    }
                },
                StateProject::Done => panic!("polled after it was ready"),
            };
            this.state.set(next);
        }
    }
}

impl<S, C, R, O, Req> fmt::Debug for ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("attempt", &self.call.attempt())
            .finish_non_exhaustive()
    }
}
