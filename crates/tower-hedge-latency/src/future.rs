mod hedge;
mod race;
mod timing;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::{Sleep, sleep_until};
use tower_attempt::{Attempt, Observe, Outcomes, Requests};
use tower_service::Service;

pub(crate) use self::race::{Race, Spare};
pub(crate) use self::timing::{Due, Timing};
use crate::elsewhere::{Destinations, Elsewhere};
use crate::losers::{Holds, Losers};

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// The future of a call and its hedges; made by [`Hedge`](crate::Hedge).
///
/// # Cancel safety
///
/// Dropping the future drops every attempt in flight. A hedge that was not sent yet holds no token of the budget.
///
/// # Panics
///
/// Panics if it is polled again after it was ready.
///
/// `F` is the future of the service `S`, and `V` its output. No bound of this type and no type of a field mentions the error
/// type, because the compiler, which erases lifetimes inside `tokio::spawn`, could not prove it to be `'static`.
#[pin_project]
pub struct ResponseFuture<F, S, V, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    /// The first attempt, until it ends.
    #[pin]
    primary: Option<L::Attempt>,
    /// The first attempt's failure while hedges are in flight. Boxed, because most calls have none.
    failure: Option<Box<V>>,
    /// Inline, because every hedged call that does not answer immediately needs it.
    #[pin]
    timer: Option<Sleep>,
    race: Race<F, S, P, O, A, L, Req>,
}

impl<F, S, V, P, O, A, L, Req> ResponseFuture<F, S, V, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    pub(crate) fn new(primary: L::Attempt, race: Race<F, S, P, O, A, L, Req>) -> Self {
        Self {
            primary: Some(primary),
            failure: None,
            timer: None,
            race,
        }
    }
}

impl<F, S, P, O, A, L, Req> Future for ResponseFuture<F, S, Outcome<S, Req>, P, O, A, L, Req>
where
    F: Future<Output = Outcome<S, Req>>,
    S: Service<Req, Future = F> + Clone,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: Elsewhere<S, Req>,
    L: Losers<F>,
{
    type Output = Outcome<S, Req>;

    /// Polls the first attempt, then the hedges by age, then the timer, so that a tie goes to the
    /// oldest attempt.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        assert!(!this.race.has_ended(), "polled after it was ready");

        let (decisive, mut outcome) = 'race: {
            if let Some(primary) = this.primary.as_mut().as_pin_mut()
                && let Poll::Ready(outcome) = this.race.poll_primary(|| primary.poll(cx))
            {
                let decides = this.race.decides(&Attempt::PRIMARY, &outcome);
                if decides || !this.race.survives_failure() {
                    break 'race (Attempt::PRIMARY, outcome);
                }
                this.primary.set(None);
                this.race.primary_failed();
                *this.failure = Some(Box::new(outcome));
            }
            loop {
                if this.race.is_in_a_hurry() {
                    this.timer.set(None);
                    this.race.add_hedge();
                }
                if let Poll::Ready((attempt, outcome)) = this.race.poll_hedges(cx) {
                    break 'race (attempt, outcome);
                }
                if this.race.is_in_a_hurry() {
                    continue;
                }
                if !this.race.has_sent()
                    && let Some(failure) = this.failure.take()
                {
                    break 'race (Attempt::PRIMARY, *failure);
                }
                match this.race.due() {
                    Due::Now => {}
                    Due::Never => return Poll::Pending,
                    Due::At(instant) => {
                        match this.timer.as_mut().as_pin_mut() {
                            // A server's pushback has moved the hedge since the timer was set.
                            Some(timer) if timer.deadline() != instant => timer.reset(instant),
                            Some(_) => {}
                            None => this.timer.set(Some(sleep_until(instant))),
                        }
                        if let Some(timer) = this.timer.as_mut().as_pin_mut() {
                            ready!(timer.poll(cx));
                        }
                        this.timer.set(None);
                    }
                }
                this.race.add_late_hedge();
            }
        };
        // The losers are dropped before the caller receives the outcome.
        if let Some(loser) = this.primary.as_mut().as_pin_mut()
            && decisive != Attempt::PRIMARY
        {
            this.race.losers().lose(loser);
        }
        if let Some(failure) = this.failure.take() {
            this.race.losers().discard(*failure);
        }
        this.primary.set(None);
        this.timer.set(None);
        this.race.end(decisive, &mut outcome);
        Poll::Ready(outcome)
    }
}

impl<F, S, V, P, O, A, L, Req> fmt::Debug for ResponseFuture<F, S, V, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
