use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tower::Service;

/// The bounds of all subjects.
pub(super) trait Inner:
    Service<u64, Response = u64, Error = Overflow, Future = Answer> + Copy + Send + Sync + 'static
{
}

impl Inner for AtOnce {}
impl Inner for YieldsOnce {}

/// Answers at its first poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AtOnce;

/// Answers at its second poll.
#[derive(Clone, Copy, Debug)]
pub(super) struct YieldsOnce;

/// tower-resilience requires a `Clone` error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Overflow;

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("overflow")
    }
}

impl std::error::Error for Overflow {}

/// An answer after this number of polls.
#[derive(Debug)]
pub(crate) struct Answer {
    polls: u32,
    outcome: Result<u64, Overflow>,
}

impl Answer {
    /// The request decides on success, so that the optimiser cannot know the outcome.
    fn new(polls: u32, request: u64) -> Self {
        let outcome = request.checked_add(1).ok_or(Overflow);
        Self { polls, outcome }
    }
}

impl Future for Answer {
    type Output = Result<u64, Overflow>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.polls.checked_sub(1) {
            None => Poll::Ready(self.outcome),
            Some(polls) => {
                self.polls = polls;
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl Service<u64> for AtOnce {
    type Response = u64;
    type Error = Overflow;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Overflow>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Answer {
        Answer::new(0, request)
    }
}

impl Service<u64> for YieldsOnce {
    type Response = u64;
    type Error = Overflow;
    type Future = Answer;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Overflow>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: u64) -> Answer {
        Answer::new(1, request)
    }
}
