//! How a call ends.

use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, AttemptKind, Classify, Replays};
use tower_service::Service;

use super::super::Outcome;
use super::super::timing::Due;
use super::Race;
use crate::elsewhere::Elsewhere;
use crate::losers::Losers;
use crate::{HedgeInfo, Observer, SkipReason};

impl<S, C, R, O, A, L, Req> Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    /// Disposes of the losers, and says in the outcome what it took if a hedge was sent.
    #[inline]
    pub(in crate::future) fn end(
        &mut self,
        winner: Attempt,
        good: bool,
        outcome: &mut Outcome<S, Req>,
    ) {
        self.ended = true;
        self.spare = None;
        let won = winner.kind() == AttemptKind::Hedge;
        self.settle(good, won);
        if !good {
            self.settings.state.counters.failed.count();
        }
        if self.stage > 0 {
            self.end_race(winner, outcome);
        }
        self.observer.finished(&winner);
    }

    #[cold]
    fn end_race(&mut self, winner: Attempt, outcome: &mut Outcome<S, Req>) {
        for hedge in std::mem::take(&mut self.hedges) {
            let attempt = hedge.attempt;
            if !hedge.lose(&self.losers) {
                self.skip(&attempt, SkipReason::NotReady);
            }
        }
        if winner.kind() == AttemptKind::Hedge {
            self.settings.state.counters.hedge_wins.count();
        }
        if self.attempts > 1 {
            let delay = self.timing.delay(&self.settings, 0);
            let info = HedgeInfo::new(winner, self.attempts, delay.unwrap_or_default());
            self.rules.classify.attach(outcome, info);
        }
    }

    /// The call ends: what there is to learn, to count and to tell of hedges.
    #[inline]
    fn settle(&self, succeeded: bool, won: bool) {
        let settings = &*self.settings;
        let call = settings.state.counters.calls.count();
        if !self.watched {
            return;
        }
        if !settings.sends() {
            self.shadow(Instant::now());
        }
        if !settings.learns() {
            return;
        }
        let class = self.timing.class(settings);
        if let Some(calls) = class.estimator.counts_for(call) {
            let now = Instant::now();
            if let Some(seen) = self.timing.seen(succeeded, won, now) {
                settings.learn(class, seen, calls, now);
            }
        }
        if self.attempts > 1 {
            class.guard.record(self.attempts - 1, won);
        }
    }

    /// Counts the hedges that would have been sent by now.
    #[cold]
    fn shadow(&self, now: Instant) {
        for hedge in 0.. {
            let due = self.timing.due(&self.settings, hedge, Duration::ZERO);
            match due.before(&self.deadline) {
                Due::At(due) if due > now => return,
                Due::Never => return,
                _ => {}
            }
            if hedge == 0 {
                self.settings.state.counters.late.count();
            }
            self.skip(&Attempt::hedge(hedge + 2), SkipReason::Shadow);
        }
    }
}

impl<S, C, R, O, A, L, Req> Drop for Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    fn drop(&mut self) {
        if !self.ended {
            self.settle(false, false);
            for hedge in self.hedges.iter().filter(|hedge| !hedge.is_sent()) {
                self.skip(&hedge.attempt, SkipReason::NotReady);
            }
            self.settings.state.counters.cancelled.count();
            self.observer.cancelled();
        }
    }
}
