//! Hedges, from the time they are due.

use std::future::Future;
use std::task::{Context, Poll, ready};

use tower_attempt::{Attempt, Observe, Outcomes, Record};
use tower_service::Service;

use super::super::Outcome;
use super::super::hedge::{End, Hedge};
use super::Race;
use crate::elsewhere::Elsewhere;
use crate::losers::Losers;
use crate::{Event, SkipReason};

impl<F, S, P, O, A, L, Req> Race<F, S, P, O, A, L, Req>
where
    F: Future<Output = Outcome<S, Req>>,
    S: Service<Req, Future = F> + Clone,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: Elsewhere<S, Req>,
    L: Losers<F>,
{
    /// Adds the hedge that is due.
    pub(in crate::future) fn add_late_hedge(&mut self) {
        if self.stage == 0 {
            self.settings.state.counters.late.count();
        }
        self.add_hedge();
    }

    /// Adds the next hedge, unless hedges do not win or the budget is empty.
    pub(in crate::future) fn add_hedge(&mut self) {
        self.hurry = false;
        self.stage += 1;
        let attempt = Attempt::hedge(self.stage + 1);
        // After the last hedge, sent or not, the copy of the request is dropped.
        let is_last = self.timing.delay(&self.settings, self.stage).is_none();
        let last = self.spare.take_if(|_| is_last);
        if !self.is_worth_it() {
            return self.skip(attempt, SkipReason::HeldBack);
        }
        if self.budget().available() == 0 {
            return self.skip(attempt, SkipReason::Denied);
        }
        let (protocol, elsewhere) = (&self.protocol, &self.elsewhere);
        let next = match last {
            None => self.spare.as_ref().and_then(|spare| {
                let request = protocol.again(&spare.saved, attempt)?;
                let own = spare.service.clone();
                Some((elsewhere.service(&spare.elsewhere, attempt, own), request))
            }),
            Some(spare) => protocol.last(spare.saved, attempt).map(|request| {
                let own = spare.service;
                (elsewhere.service(&spare.elsewhere, attempt, own), request)
            }),
        };
        let Some((service, request)) = next else {
            return self.skip(attempt, SkipReason::NotResendable);
        };
        self.hedges.push(Hedge::new(attempt, service, request));
    }

    /// A fixed trigger is the caller's explicit decision, and is not held back.
    fn is_worth_it(&self) -> bool {
        !self.settings.learns() || self.timing.class(&self.settings).guard.allows()
    }

    /// Returns the first outcome of a hedge that decides the race.
    ///
    /// Drops the failures of hedges: if all attempts fail, the caller receives the first attempt's failure.
    pub(in crate::future) fn poll_hedges(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(Attempt, Outcome<S, Req>)> {
        let mut next = 0;
        while let Some(hedge) = self.hedges.get_mut(next) {
            let polled = match hedge.is_sent() {
                true => self.record.enter(hedge.attempt, || hedge.poll(cx)),
                false => self.send(cx, next),
            };
            let Poll::Ready(end) = polled else {
                next += 1;
                continue;
            };
            let attempt = self.hedges.remove(next).attempt;
            match end {
                End::Answered(outcome) if self.decides(&attempt, &outcome) => {
                    return Poll::Ready((attempt, outcome));
                }
                End::Answered(failure) => {
                    self.losers.discard(failure);
                    // An older hedge may wait for the permit of this one.
                    next = 0;
                }
                End::Skipped(reason) => self.skip(attempt, reason),
            }
        }
        Poll::Pending
    }

    /// Sends the hedge at this place once its service is ready, and polls it.
    fn send(&mut self, cx: &mut Context<'_>, place: usize) -> Poll<End<Outcome<S, Req>>> {
        let may_send = self.may_send();
        let Some(hedge) = self.hedges.get_mut(place) else {
            return Poll::Pending;
        };
        let ready = ready!(hedge.poll_ready(cx));
        let Some(mut request) = ready.filter(|_| may_send) else {
            return Poll::Ready(End::Skipped(SkipReason::NotReady));
        };
        let own = self.protocol.budget(&self.context);
        let budget = own.unwrap_or(&self.settings.tuning.budget);
        let Some(permit) = budget.withdraw() else {
            return Poll::Ready(End::Skipped(SkipReason::Denied));
        };
        permit.spend();
        let (protocol, context) = (&self.protocol, &mut self.context);
        protocol.mark(context, hedge.attempt, self.attempts, &mut request);
        let attempt = hedge.attempt;
        self.record.send(Event::AttemptStarted { attempt });
        self.attempts += 1;
        self.settings.state.counters.hedges.count();
        self.record.enter(hedge.attempt, || {
            hedge.send(request, &self.losers);
            hedge.poll(cx)
        })
    }
}
