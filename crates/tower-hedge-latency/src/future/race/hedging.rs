//! Sends hedges that are due, and reacts to failed attempts.

use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, Deadline, Hint, Observe, Outcomes, Record, Verdict};
use tower_service::Service;

use super::super::Outcome;
use super::{DueHedge, HedgeState, Race, later};
use crate::destination::HedgeDestination;
use crate::losers::Losers;
use crate::{Event, SkipReason, StopReason};

impl<H, S, P, O, A, L, Req> Race<H, S, P, O, A, L, Req>
where
    H: Future<Output = Outcome<S, Req>>,
    S: Service<Req> + Clone,
    S::Future: Future<Output = Outcome<S, Req>>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: HedgeDestination<S, Req>,
    L: Losers<S::Future, Attempt = H>,
{
    /// Adds the next hedge, which is due now. Skips it if the guard holds it back, the budget allows no hedge, or the
    /// request cannot be resent.
    pub(in crate::future) fn add_hedge(&mut self) {
        if self.stage == 0 && !self.hurry {
            self.settings.counters.late.count();
        }
        self.hurry = false;
        self.stage += 1;
        let attempt = Attempt::hedge(self.stage + 1);
        // Only hedges of a percentile are held back. Any other trigger is the user's explicit decision.
        if self.settings.learns() && !self.class().guard.allows() {
            return self.skip(attempt, SkipReason::HeldBack);
        }
        if self.budget().available() == 0 {
            return self.skip(attempt, SkipReason::Denied);
        }
        let Some((service, saved)) = &self.spare else {
            return;
        };
        let Some(mut request) = self.protocol.again(saved, attempt) else {
            return self.skip(attempt, SkipReason::NotResendable);
        };
        let own = service.clone();
        let service = self.destination.service(attempt, &mut request, own);
        let state = HedgeState::Readying(service, request);
        self.hedges.push(DueHedge { attempt, state });
    }

    /// Returns the first outcome of a hedge that decides the race.
    ///
    /// Discards the retryable failures of hedges: if no outcome decides the race, the caller receives the first
    /// attempt's failure.
    pub(in crate::future) fn poll_hedges(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<(Attempt, Outcome<S, Req>)> {
        let mut next = 0;
        while let Some(hedge) = self.hedges.get_mut(next) {
            let attempt = hedge.attempt;
            match &mut hedge.state {
                HedgeState::Readying(service, _) => match service.poll_ready(cx) {
                    Poll::Ready(ready) => self.send(next, ready.is_ok()),
                    Poll::Pending => next += 1,
                },
                HedgeState::Sent(future) => {
                    let future = future.as_mut().as_pin_mut();
                    let poll = || future.map_or(Poll::Pending, |future| future.poll(cx));
                    let Poll::Ready(outcome) = self.record.enter(attempt, poll) else {
                        next += 1;
                        continue;
                    };
                    self.hedges.remove(next);
                    if self.decides(attempt, &outcome) {
                        return Poll::Ready((attempt, outcome));
                    }
                    self.losers.discard(outcome);
                    // The end of this hedge may release the concurrency permit that an older hedge waits for, so all
                    // hedges are polled again.
                    next = 0;
                }
            }
        }
        Poll::Pending
    }

    /// Sends the hedge at index `place`, or removes it.
    ///
    /// The budget's token is taken only now, so a hedge whose service is never ready takes no token that another hedge
    /// or retry could use.
    fn send(&mut self, place: usize, is_ready: bool) {
        let DueHedge { attempt, state } = self.hedges.remove(place);
        let HedgeState::Readying(mut service, mut request) = state else {
            return;
        };
        if !is_ready || !self.may_send() {
            return self.skip(attempt, SkipReason::NotReady);
        }
        if self.is_interrupted(attempt) {
            return self.skip(attempt, SkipReason::NotResendable);
        }
        let Some(permit) = self.budget().withdraw() else {
            return self.skip(attempt, SkipReason::Denied);
        };
        permit.spend();
        let (protocol, context) = (&self.protocol, &mut self.context);
        protocol.mark(context, attempt, self.attempts, &mut request);
        self.record.send(Event::AttemptStarted { attempt });
        self.attempts += 1;
        self.settings.counters.hedges.count();
        let future = self.record.enter(attempt, || service.call(request));
        let state = HedgeState::Sent(Box::pin(Some(self.losers.hold(future))));
        self.hedges.insert(place, DueHedge { attempt, state });
    }

    /// Classifies an attempt's outcome. Returns whether it decides the race: a success does, and so does a failure with
    /// the verdict `Fatal` or `Unsafe`.
    ///
    /// Called once for each outcome, because it also records failures and sends an event.
    #[inline]
    pub(in crate::future) fn decides(
        &mut self,
        attempt: Attempt,
        outcome: &Outcome<S, Req>,
    ) -> bool {
        let verdict = match self.is_interrupted(attempt) {
            // The outcome may only be the service's answer to the interruption.
            true => Verdict::transient(),
            false => self.protocol.classify(&self.context, &attempt, outcome),
        };
        let describe = || self.protocol.describe(outcome);
        self.record.attempt_ended(attempt, Some(verdict), describe);
        self.reason = match verdict {
            Verdict::Success => StopReason::Success,
            _ if verdict.is_retry() => StopReason::AttemptsExhausted,
            _ => StopReason::Fatal,
        };
        if verdict.is_failure() {
            self.failed(attempt, verdict, outcome);
        }
        !verdict.is_retry()
    }

    /// Usually records a failure on the budget, and obeys a hint that demands a wait or forbids further attempts.
    #[cold]
    fn failed(&mut self, attempt: Attempt, verdict: Verdict, outcome: &Outcome<S, Req>) {
        // A retry layer below that gave up may have recorded the failure on the same budget.
        if !self.protocol.is_recorded(outcome, self.budget()) {
            // If the call ends with the first attempt's failure, the layer above that shares the budget decides whether
            // to record it.
            match attempt == Attempt::PRIMARY && !self.settings.deposits {
                true => self.unrecorded = true,
                false => self.budget().record_failure(),
            }
        }
        if !verdict.is_retry() {
            return;
        }
        self.attempt_ended(attempt, true);
        if let Verdict::Retry {
            hint: Some(hint), ..
        } = verdict
        {
            match hint {
                Hint::AtLeast(wait) => self.push_back(wait, false),
                Hint::Exactly(wait) => self.push_back(wait, true),
                _ => self.call_off(),
            }
        }
        self.hurry = self.sends_on_failure() && !self.is_readying() && self.due().is_some();
    }

    /// Forbids hedges until `wait` and all waits demanded earlier have passed. If the next hedge was due before that
    /// time, or if exactly `wait` was demanded, the hedge moves to that time.
    fn push_back(&mut self, wait: Duration, exactly: bool) {
        let Some(end) = later(Instant::now(), wait) else {
            return self.call_off();
        };
        let end = self.earliest.map_or(end, |earliest| earliest.max(end));
        self.earliest = Some(end);
        let is_earlier = |due| due < end;
        if exactly || self.due_at(self.stage).is_some_and(is_earlier) {
            self.moved = Some((self.stage, end));
        }
    }

    /// Cancels all hedges that were not sent, including those that wait for their service.
    fn call_off(&mut self) {
        self.deadline = Deadline::at(Instant::now());
        self.drop_unused_copies();
    }

    /// Whether the call continues after the failure of its first attempt.
    ///
    /// Without `hedge_on_failure` the call continues only if a hedge is in flight: retries belong to a retry layer.
    ///
    /// With `hedge_on_failure` the call also continues if a hedge may be sent now: the next hedge, or a due hedge that
    /// waits for its service. The end of the failed attempt may have made that hedge's service ready, for example by
    /// releasing a concurrency permit. So the hedge's service is polled once more. If it is still pending and no hedge
    /// is in flight, the call ends.
    pub(in crate::future) fn survives_failure(&self) -> bool {
        self.has_sent() || self.hurry || self.sends_on_failure() && self.is_readying()
    }

    /// Whether the failure of an attempt may send a hedge immediately.
    fn sends_on_failure(&self) -> bool {
        self.settings.config.on_failure == Some(true) && self.may_send()
    }
}
