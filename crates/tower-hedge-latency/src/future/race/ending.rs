//! The end of a call.

use tokio::time::Instant;
use tower_attempt::{Attempt, AttemptKind, Mode, Observe, Outcomes, Record, Requests};
use tower_service::Service;

use super::super::Outcome;
use super::{HedgeState, Race};
use crate::estimator::Observation;
use crate::losers::Losers;
use crate::trigger::micros;
use crate::{Event, HedgeInfo, SkipReason, StopReason};

impl<H, S, P, O, A, L, Req> Race<H, S, P, O, A, L, Req>
where
    S: Service<Req>,
    S::Future: Future<Output = Outcome<S, Req>>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    L: Losers<S::Future, Attempt = H>,
{
    /// Ends the call with the outcome of the `decisive` attempt, and disposes of the other hedges. If a hedge was sent
    /// and the protocol is HTTP or gRPC, attaches [`HedgeInfo`] to a response.
    #[inline]
    pub(in crate::future) fn end(&mut self, decisive: Attempt, outcome: &mut Outcome<S, Req>) {
        self.ended = true;
        self.settle(decisive.kind() == AttemptKind::Hedge);
        let reason = self.reason;
        match reason {
            StopReason::Success => self.settings.deposit(self.watched, self.budget()),
            _ => {
                self.settings.counters.failed.count();
            }
        }
        let winner = (reason == StopReason::Success).then_some(decisive);
        if self.stage > 0 {
            self.end_race(decisive, winner, outcome);
        }
        self.spare = None;
        self.record.send(Event::CallEnded { reason, winner });
    }

    #[cold]
    fn end_race(
        &mut self,
        decisive: Attempt,
        winner: Option<Attempt>,
        outcome: &mut Outcome<S, Req>,
    ) {
        for hedge in &self.hedges {
            self.attempt_ended(hedge.attempt, true);
        }
        if decisive.kind() == AttemptKind::Hedge {
            self.attempt_ended(Attempt::PRIMARY, true);
        }
        for hedge in std::mem::take(&mut self.hedges) {
            match hedge.state {
                HedgeState::Sent(mut future) => self.losers.dispose(future.as_mut()),
                HedgeState::Readying(..) => self.skip(hedge.attempt, SkipReason::NotReady),
            }
        }
        if decisive.kind() == AttemptKind::Hedge {
            self.record_hidden_failure();
            if winner.is_some() {
                self.settings.counters.hedge_wins.count();
            }
        }
        if self.attempts > 1 {
            let info = HedgeInfo {
                winner,
                attempts: self.attempts,
                delay: self.delay(0).unwrap_or_default(),
            };
            self.protocol.attach(outcome, info);
        }
    }
}

impl<H, S, P: Requests<Req>, O: Observe, A, L, Req> Race<H, S, P, O, A, L, Req> {
    /// Counts a call that ends. If the trigger learns, this may also record the first attempt's latency, and whether a
    /// hedge won. `overtaken` means that the call ends with the outcome of a hedge.
    #[inline]
    fn settle(&mut self, overtaken: bool) {
        let call = self.settings.counters.calls.count();
        if !self.watched {
            return;
        }
        if self.settings.config.common.mode() == Mode::Shadow {
            self.shadow(Instant::now());
        }
        let settings = &*self.settings;
        if !settings.learns() {
            return;
        }
        let class = self.class();
        if let Some(calls) = class.estimator.counts_for(call) {
            let now = Instant::now();
            if let Some(seen) = self.observation(overtaken, now) {
                settings.learn(class, seen, calls, now);
            }
        }
        if self.attempts > 1 {
            let won = overtaken && self.reason == StopReason::Success;
            class.guard.record(self.attempts - 1, won);
        }
    }

    /// Returns the observed latency of the first attempt when the call ends `now`. `overtaken` means that the call ends
    /// with the outcome of a hedge.
    ///
    /// - The attempt succeeded: its latency.
    /// - A hedge overtook the attempt in flight: the attempt's latency is only known to be longer than its time in
    ///   flight. The hedge's own latency is not recorded.
    /// - The attempt failed, or the caller dropped it in flight, before the learned or initial delay: `None`, because a
    ///   response might have taken any time. Also `None` if no such delay is known.
    /// - The attempt failed, or the caller dropped it in flight, at that delay or later: the time until the failure or
    ///   drop, so that a stalled service does not seem fast.
    fn observation(&self, overtaken: bool, now: Instant) -> Option<Observation> {
        let has_failed = self.failed_after.is_some();
        let out = now.saturating_duration_since(self.start);
        let out = self.failed_after.unwrap_or(out);
        if overtaken && !has_failed {
            return Some(Observation::CutOff(micros(out)));
        }
        let has_succeeded = !has_failed && self.reason == StopReason::Success;
        let is_timeout = || self.learned.is_some_and(|delay| out >= delay);
        (has_succeeded || is_timeout()).then(|| Observation::Ended(micros(out)))
    }

    /// Counts the hedges that have come due by `now`, for the shadow mode.
    #[cold]
    fn shadow(&mut self, now: Instant) {
        let mut hedge = 0;
        while self.due_at(hedge).is_some_and(|due| due <= now) {
            if hedge == 0 {
                self.settings.counters.late.count();
            }
            self.skip(Attempt::hedge(hedge + 2), SkipReason::Shadow);
            hedge += 1;
        }
        self.stage = hedge;
    }

    /// Records the first attempt's failure on a shared budget, because the layer above does not receive that failure.
    fn record_hidden_failure(&self) {
        if self.unrecorded {
            self.budget().record_failure();
        }
    }
}

impl<H, S, P: Requests<Req>, O: Observe, A, L, Req> Drop for Race<H, S, P, O, A, L, Req> {
    fn drop(&mut self) {
        if !self.ended {
            self.settle(false);
            self.record_hidden_failure();
            for hedge in std::mem::take(&mut self.hedges) {
                if !hedge.is_sent() {
                    self.skip(hedge.attempt, SkipReason::NotReady);
                }
            }
            let counters = &self.settings.counters;
            counters.cancelled.count();
            if self.stage > 0 {
                counters.cancelled_late.count();
            }
        }
    }
}
