mod call;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower_attempt::{Attempt, Classify, Replays, Verdict};
use tower_service::Service;

pub(crate) use self::call::Call;
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
    /// `None` while the next one is waited for.
    #[pin]
    attempt: Option<S::Future>,
    call: Call<S, C, R, O, Req>,
}

impl<S, C, R, O, Req> ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    #[inline]
    pub(crate) fn new(first: S::Future, call: Call<S, C, R, O, Req>) -> Self {
        Self {
            attempt: Some(first),
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

    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let Some(attempt) = this.attempt.as_mut().as_pin_mut() {
                let outcome = ready!(attempt.poll(cx));
                let verdict = this.call.judge(&outcome);
                if verdict == Verdict::Success {
                    this.call.succeed();
                    if this.call.attempt() == Attempt::PRIMARY {
                        return Poll::Ready(outcome);
                    }
                    return Poll::Ready(this.call.with_info(outcome, StopReason::Success));
                }
                // Its future goes before the wait, too, so that the wait holds no permit.
                this.attempt.set(None);
                if let Err(outcome) = this.call.after(verdict, outcome) {
                    return Poll::Ready(outcome);
                }
            }
            match ready!(this.call.poll_next(cx)) {
                Ok(attempt) => this.attempt.set(Some(attempt)),
                Err(error) => {
                    this.call.stop(StopReason::NotReady);
                    return Poll::Ready(Err(error));
                }
            }
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
