mod race;

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use pin_project::pin_project;
use tokio::time::{Sleep, sleep_until};
use tower_attempt::{Attempt, Observe, Outcomes, Record, Requests};
use tower_service::Service;

pub(crate) use self::race::Race;
use crate::destination::HedgeDestination;
use crate::losers::Losers;

type Outcome<S, Req> = Result<<S as Service<Req>>::Response, <S as Service<Req>>::Error>;

/// The future of a call and its hedges; made by [`Hedge`](crate::Hedge).
///
/// # Cancel safety
///
/// Dropping the future drops every attempt in flight. A hedge that was not sent yet holds no token of the budget.
///
/// # Panics
///
/// Panics if it is polled again after it was ready, or if it needs a timer and no tokio runtime with timers is running.
///
/// # Type parameters
///
/// `H` is an attempt in flight: the future of the service `S`, or that future in a box if the layer drains losers. `V`
/// is the output of `H`, and `Req` is the request. `P`, `O`, `A` and `L` are explained at
/// [`HedgeLayer`](crate::HedgeLayer).
// Neither the bounds nor the fields of this type mention the error type: inside `tokio::spawn` the compiler erases
// lifetimes, so it could not prove that the error type is `'static`.
#[pin_project]
pub struct ResponseFuture<H, S, V, P: Requests<Req>, O: Observe, A, L, Req> {
    /// The first attempt, until it ends.
    #[pin]
    pub(crate) primary: Option<H>,
    /// The first attempt's failure while the call waits for hedges. Boxed, because most calls do not fail.
    pub(crate) failure: Option<Box<V>>,
    /// The timer of the next hedge. Inline, because most calls that may be hedged need it.
    #[pin]
    pub(crate) timer: Option<Sleep>,
    pub(crate) race: Race<H, S, P, O, A, L, Req>,
}

impl<H, S, P, O, A, L, Req> Future for ResponseFuture<H, S, Outcome<S, Req>, P, O, A, L, Req>
where
    H: Future<Output = Outcome<S, Req>>,
    S: Service<Req> + Clone,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: HedgeDestination<S, Req>,
    L: Losers<S::Future, Attempt = H>,
{
    type Output = Outcome<S, Req>;

    /// Polls the first attempt, then the hedges by age, then the timer, so that a tie goes to the
    /// oldest attempt.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let race = this.race;
        assert!(!race.ended, "polled after it was ready");

        let (decisive, mut outcome) = 'race: {
            if let Some(primary) = this.primary.as_mut().as_pin_mut()
                && let Poll::Ready(outcome) =
                    race.record.enter(Attempt::PRIMARY, || primary.poll(cx))
            {
                if race.decides(Attempt::PRIMARY, &outcome) || !race.survives_failure() {
                    break 'race (Attempt::PRIMARY, outcome);
                }
                this.primary.set(None);
                race.failed_after = Some(race.start.elapsed());
                *this.failure = Some(Box::new(outcome));
            }
            loop {
                if race.hurry {
                    this.timer.set(None);
                    race.add_hedge();
                }
                if let Poll::Ready(decisive) = race.poll_hedges(cx) {
                    break 'race decisive;
                }
                if race.hurry {
                    continue;
                }
                if !race.has_sent()
                    && let Some(failure) = this.failure.take()
                {
                    break 'race (Attempt::PRIMARY, *failure);
                }
                let Some(due) = race.due() else {
                    return Poll::Pending;
                };
                // A hedge that is due at the call's start needs no timer.
                if due > race.start {
                    match this.timer.as_mut().as_pin_mut() {
                        // A demanded wait, such as `Retry-After`, has moved the hedge since the timer was set.
                        Some(timer) if timer.deadline() != due => timer.reset(due),
                        Some(_) => {}
                        None => this.timer.set(Some(sleep_until(due))),
                    }
                    if let Some(timer) = this.timer.as_mut().as_pin_mut() {
                        ready!(timer.poll(cx));
                    }
                    this.timer.set(None);
                }
                race.add_hedge();
            }
        };
        // Losers are dropped or moved to the background before the caller receives the outcome.
        if decisive != Attempt::PRIMARY {
            race.losers.dispose(this.primary.as_mut());
        }
        if let Some(failure) = this.failure.take() {
            race.losers.discard(*failure);
        }
        this.primary.set(None);
        this.timer.set(None);
        race.end(decisive, &mut outcome);
        Poll::Ready(outcome)
    }
}

impl<H, S, V, P: Requests<Req>, O: Observe, A, L, Req> fmt::Debug
    for ResponseFuture<H, S, V, P, O, A, L, Req>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
