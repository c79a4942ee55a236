//! The end of a call.

use std::future::Future;

use tokio::time::Instant;
use tower_attempt::{Attempt, AttemptKind, Observe, Outcomes, Record, Requests};
use tower_service::Service;

use super::super::Outcome;
use super::super::timing::Due;
use super::Race;
use crate::elsewhere::{Destinations, Elsewhere};
use crate::losers::{Holds, Losers};
use crate::{Event, HedgeInfo, SkipReason, StopReason};

impl<F, S, P, O, A, L, Req> Race<F, S, P, O, A, L, Req>
where
    F: Future<Output = Outcome<S, Req>>,
    S: Service<Req, Future = F>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: Elsewhere<S, Req>,
    L: Losers<F>,
{
    /// Ends the call with the outcome of the `decisive` attempt: disposes of the losers and, if a hedge was sent,
    /// attaches [`HedgeInfo`].
    #[inline]
    pub(in crate::future) fn end(&mut self, decisive: Attempt, outcome: &mut Outcome<S, Req>) {
        self.ended = true;
        self.spare = None;
        self.settle(decisive.kind() == AttemptKind::Hedge);
        match self.succeeded {
            true => self.settings.deposit(self.watched, self.budget()),
            false => {
                self.settings.state.counters.failed.count();
            }
        }
        let winner = self.succeeded.then_some(decisive);
        if self.stage > 0 {
            self.end_race(decisive, winner, outcome);
        }
        let reason = match (self.succeeded, self.is_retryable) {
            (true, _) => StopReason::Success,
            (false, true) => StopReason::AttemptsExhausted,
            (false, false) => StopReason::Fatal,
        };
        self.record.send(Event::CallEnded { reason, winner });
    }

    #[cold]
    fn end_race(
        &mut self,
        decisive: Attempt,
        winner: Option<Attempt>,
        outcome: &mut Outcome<S, Req>,
    ) {
        for hedge in std::mem::take(&mut self.hedges) {
            let attempt = hedge.attempt;
            if !hedge.lose(&self.losers) {
                self.skip(attempt, SkipReason::NotReady);
            }
        }
        if decisive.kind() == AttemptKind::Hedge {
            self.record_hidden_failure();
            if winner.is_some() {
                self.settings.state.counters.hedge_wins.count();
            }
        }
        if self.attempts > 1 {
            let delay = self.timing.delay(&self.settings, 0);
            let info = HedgeInfo::new(winner, self.attempts, delay.unwrap_or_default());
            self.protocol.attach(outcome, info);
        }
    }
}

impl<F, S, P, O, A, L, Req> Race<F, S, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    /// Counts and records a call that ends. `overtaken`: with the outcome of a hedge.
    #[inline]
    fn settle(&mut self, overtaken: bool) {
        let call = self.settings.state.counters.calls.count();
        if !self.watched {
            return;
        }
        if !self.settings.sends() {
            self.shadow(Instant::now());
        }
        let settings = &*self.settings;
        if !settings.learns() {
            return;
        }
        let class = self.timing.class(settings);
        if let Some(calls) = class.estimator.counts_for(call) {
            let now = Instant::now();
            if let Some(seen) = self.timing.seen(self.succeeded, overtaken, now) {
                settings.learn(class, seen, calls, now);
            }
        }
        if self.attempts > 1 {
            class
                .guard
                .record(self.attempts - 1, overtaken && self.succeeded);
        }
    }

    /// Counts the hedges that shadow mode would have sent by now.
    #[cold]
    fn shadow(&mut self, now: Instant) {
        for hedge in 0.. {
            let due = self.timing.due(&self.settings, hedge);
            match due.before(&self.deadline) {
                Due::At(due) if due > now => return,
                Due::Never => return,
                _ => {}
            }
            if hedge == 0 {
                self.settings.state.counters.late.count();
            }
            self.skip(Attempt::hedge(hedge + 2), SkipReason::Shadow);
        }
    }

    /// Records the primary's failure on a shared budget, since the layer above does not receive it.
    fn record_hidden_failure(&self) {
        if self.timing.has_primary_failed() && !self.settings.tuning.deposits {
            self.budget().record_failure();
        }
    }
}

impl<F, S, P, O, A, L, Req> Drop for Race<F, S, P, O, A, L, Req>
where
    P: Requests<Req>,
    O: Observe,
    A: Destinations,
    L: Holds<F>,
{
    fn drop(&mut self) {
        if !self.ended {
            self.settle(false);
            self.record_hidden_failure();
            for hedge in std::mem::take(&mut self.hedges) {
                if !hedge.is_sent() {
                    self.skip(hedge.attempt, SkipReason::NotReady);
                }
            }
            let counters = &self.settings.state.counters;
            counters.cancelled.count();
            if self.stage > 0 {
                counters.cancelled_late.count();
            }
        }
    }
}
