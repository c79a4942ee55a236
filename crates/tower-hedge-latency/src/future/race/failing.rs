//! What follows from failures.

use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, Classify, Deadline, Hint, Replays, Verdict};
use tower_service::Service;

use super::super::Outcome;
use super::super::timing::Due;
use super::Race;
use crate::Observer;
use crate::elsewhere::Elsewhere;
use crate::losers::Losers;

impl<S, C, R, O, A, L, Req> Race<S, C, R, O, A, L, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
    A: Elsewhere<S, Req>,
    L: Losers<S::Future>,
{
    /// Classifies an attempt's outcome, once. Returns whether it decides the race: a retry would not mend it.
    #[inline]
    pub(in crate::future) fn decides(
        &mut self,
        attempt: &Attempt,
        outcome: &Outcome<S, Req>,
    ) -> bool {
        let classify = &self.rules.classify;
        let verdict = classify.classify(&self.context, attempt, outcome);
        self.succeeded = verdict == Verdict::Success;
        if !verdict.is_retry() {
            return true;
        }
        self.failed(attempt, verdict, outcome);
        false
    }

    /// A server that asks to wait or to stop is obeyed.
    #[cold]
    fn failed(&mut self, attempt: &Attempt, verdict: Verdict, outcome: &Outcome<S, Req>) {
        // The layer above records the primary's failure on a shared budget, if it receives that failure.
        let is_seen_above = *attempt == Attempt::PRIMARY && !self.settings.tuning.deposits;
        // A retry layer below that gave up has recorded the failure.
        let classify = &self.rules.classify;
        if !classify.was_given_up(&mut self.context, outcome) && !is_seen_above {
            self.budget().record_failure();
        }
        match verdict {
            Verdict::Retry {
                hint: Some(Hint::AtLeast(wait) | Hint::Exactly(wait)),
                ..
            } => self.postpone(wait),
            Verdict::Retry { hint: Some(_), .. } => self.call_off(),
            _ => {}
        }
        self.hurry = self.hedges_on_failure();
    }

    /// No hedge goes out before so much time has passed.
    fn postpone(&mut self, wait: Duration) {
        let now = Instant::now();
        let Some(earliest) = now.checked_add(wait) else {
            return self.call_off();
        };
        self.earliest = self.earliest.max(Some(earliest));
        let due = match self.due() {
            Due::Never => return,
            Due::Now => now,
            Due::At(due) => due,
        };
        self.postponed += earliest.saturating_duration_since(due);
    }

    /// No hedge goes out any more, nor one that was due already.
    fn call_off(&mut self) {
        self.spare = None;
        self.deadline = Deadline::at(Instant::now());
    }

    /// Whether the call goes on when its first attempt has failed.
    ///
    /// Without others in flight it does not: repeating is not this layer's business, unless it was
    /// told so and no server asks to wait, and a hedge whose service is not ready is no reason to wait.
    pub(in crate::future) fn survives_failure(&self) -> bool {
        self.has_sent() || self.hurry
    }

    /// Records the primary's failure on a shared budget, since the layer above does not receive it.
    pub(super) fn record_hidden_failure(&self) {
        if self.timing.has_primary_failed() && !self.settings.tuning.deposits {
            self.budget().record_failure();
        }
    }

    pub(in crate::future) fn primary_failed(&mut self) {
        self.observer.attempt_failed(&Attempt::PRIMARY);
        self.timing.primary_failed();
    }

    /// Whether a failure now is a reason for a hedge.
    fn hedges_on_failure(&self) -> bool {
        self.settings.tuning.on_failure && !matches!(self.due(), Due::Never) && self.may_send()
    }

    /// Whether a hedge may go out now: before the deadline, and not while a server has asked to wait.
    pub(super) fn may_send(&self) -> bool {
        let is_over = |earliest| earliest <= Instant::now();
        self.deadline.leaves(Duration::ZERO) && self.earliest.is_none_or(is_over)
    }
}
