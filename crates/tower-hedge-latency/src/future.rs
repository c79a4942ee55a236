mod hedge;
mod race;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::{Sleep, sleep_until};
use tower_attempt::{Attempt, Classify, Replays};
use tower_service::Service;

use self::race::Due;
pub(crate) use self::race::{Race, Spare};
use crate::Observer;

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// A call and its hedges; made by [`Hedge`](crate::Hedge).
///
/// # Cancel safety
///
/// Dropping it drops every attempt that is in flight. A hedge that was not sent yet has no token
/// of the budget.
#[pin_project]
pub struct ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    /// The first attempt, until it ends.
    #[pin]
    primary: Option<S::Future>,
    /// Its failure, while hedges are still in flight.
    failure: Option<Outcome<S, Req>>,
    /// Inline, since every call that is hedged and does not answer at once has one.
    #[pin]
    timer: Option<Sleep>,
    race: Race<S, C, R, O, Req>,
}

impl<S, C, R, O, Req> ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    pub(crate) fn new(primary: S::Future, race: Race<S, C, R, O, Req>) -> Self {
        Self {
            primary: Some(primary),
            failure: None,
            timer: None,
            race,
        }
    }
}

impl<S, C, R, O, Req> Future for ResponseFuture<S, C, R, O, Req>
where
    S: Service<Req> + Clone,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    type Output = Outcome<S, Req>;

    /// Polls the first attempt, then the hedges by age, then the timer, so that a tie goes to the
    /// oldest attempt.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        assert!(!this.race.has_ended(), "polled after it was ready");

        let (winner, mut outcome) = 'race: {
            if let Some(primary) = this.primary.as_mut().as_pin_mut()
                && let Poll::Ready(outcome) = primary.poll(cx)
            {
                if this.race.is_decided_by(&outcome) {
                    break 'race (Attempt::PRIMARY, outcome);
                }
                this.primary.set(None);
                this.race.primary_failed();
                *this.failure = Some(outcome);
            }
            loop {
                if let Poll::Ready(won) = this.race.poll_hedges(cx) {
                    break 'race won;
                }
                if !this.race.has_sent()
                    && let Some(failure) = this.failure.take()
                {
                    break 'race (Attempt::PRIMARY, failure);
                }
                match this.race.due() {
                    Due::Now => {}
                    Due::Never => return Poll::Pending,
                    Due::At(instant) => {
                        if this.timer.is_none() {
                            this.timer.set(Some(sleep_until(instant)));
                        }
                        if let Some(timer) = this.timer.as_mut().as_pin_mut() {
                            ready!(timer.poll(cx));
                        }
                        this.timer.set(None);
                    }
                }
                this.race.add_hedge();
            }
        };
        // The losers go before the caller hears of the winner.
        this.primary.set(None);
        this.timer.set(None);
        this.race.end(winner, &mut outcome);
        Poll::Ready(outcome)
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
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
