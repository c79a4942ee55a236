mod call;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tower_attempt::{Attempt, Observe, Outcomes, Requests, Verdict};
use tower_service::Service;

pub(crate) use self::call::Call;
use crate::StopReason;
use crate::time_limit::{Limited, TimeLimit, Timer};

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// The future of a call and its retries; made by [`Retry`](crate::Retry).
///
/// # Cancel safety
///
/// Dropping the future drops the attempt in flight, or ends the wait for the next attempt. The token of an attempt that
/// was not sent yet returns to the budget.
///
/// # Panics
///
/// May panic if it is polled again after it was ready. Panics if it needs a timer and no tokio runtime with timers is
/// running.
// `F` is the future of the service `S`. Neither the bounds nor the fields of this type mention the error type: inside
// `tokio::spawn` the compiler erases lifetimes, so it could not prove that the error type is `'static`.
#[pin_project]
pub struct ResponseFuture<F, S, P: Requests<Req>, O: Observe, T: Limited, Req> {
    /// `None` during the wait for the next attempt.
    #[pin]
    pub(crate) attempt: Option<F>,
    #[pin]
    pub(crate) timer: T::Timer,
    pub(crate) limit: T,
    pub(crate) call: Call<S, P, O, Req>,
}

impl<F, S, P, O, T, Req> Future for ResponseFuture<F, S, P, O, T, Req>
where
    F: Future<Output = Outcome<S, Req>>,
    S: Service<Req, Future = F>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    T: TimeLimit<P, S::Response, S::Error>,
{
    type Output = Outcome<S, Req>;

    /// Polls the attempt before the timer, so that a success at the last moment counts.
    #[inline]
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        loop {
            if let Some(attempt) = this.attempt.as_mut().as_pin_mut() {
                let (polled, below) = this.call.poll(|| attempt.poll(cx));
                if below > 0 {
                    this.call.add_retries_below(below);
                }
                let failed = match polled {
                    Poll::Ready(outcome) => {
                        let verdict = this.call.classify_outcome(&outcome);
                        if matches!(verdict, Verdict::Success) {
                            this.call.succeed();
                            if this.call.attempt == Attempt::PRIMARY {
                                // Takes the outcome apart. To copy a small outcome in one piece, the processor would
                                // wait until its parts are written, for a tenth of the call's time.
                                return Poll::Ready(Ok(outcome?));
                            }
                            return Poll::Ready(this.call.recovered(outcome));
                        }
                        // The attempt's future may hold a concurrency permit, so it is dropped before the wait.
                        this.attempt.set(None);
                        let elapsed = match verdict.is_retry() {
                            true => this.timer.as_mut().poll(cx, false),
                            // The caller receives this outcome, even if a deadline has just expired.
                            false => Poll::Pending,
                        };
                        match elapsed {
                            Poll::Pending => this.call.after(verdict, outcome),
                            // The attempt failed, and the call's deadline has expired as well. The service may have its
                            // own timer for the same instant.
                            Poll::Ready(elapsed) => {
                                // The call ends here. If this layer can retry, it keeps layers above from a retry where
                                // it can, and records the failure itself. If it cannot retry, a layer above may retry
                                // the call, and may have to record the failure.
                                let is_passed_on = !this.call.settings.can_retry;
                                this.call.record_failure(verdict, &outcome, is_passed_on);
                                this.call.after_timeout(elapsed, this.limit.answer(elapsed))
                            }
                        }
                    }
                    Poll::Pending => {
                        let elapsed = ready!(this.timer.as_mut().poll(cx, true));
                        this.attempt.set(None);
                        this.call.after_timeout(elapsed, this.limit.answer(elapsed))
                    }
                };
                if let Err(outcome) = failed {
                    return Poll::Ready(outcome);
                }
            }
            if let Poll::Ready(elapsed) = this.timer.as_mut().poll(cx, false) {
                let answer = this.limit.answer(elapsed);
                return Poll::Ready(this.call.end(answer, StopReason::DeadlineExceeded));
            }
            match ready!(this.call.poll_next(cx)) {
                Ok(attempt) => {
                    this.attempt.set(Some(attempt));
                    this.timer.as_mut().attempt_started();
                }
                Err(error) => {
                    return Poll::Ready(this.call.end(Err(error), StopReason::NotReady));
                }
            }
        }
    }
}

impl<F, S, P: Requests<Req>, O: Observe, T: Limited, Req> fmt::Debug
    for ResponseFuture<F, S, P, O, T, Req>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture")
            .field("attempt", &self.call.attempt)
            .finish_non_exhaustive()
    }
}
