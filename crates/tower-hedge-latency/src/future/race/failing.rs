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
    /// Judges an attempt's outcome, once.
    #[inline]
    pub(in crate::future) fn is_good(
        &mut self,
        attempt: &Attempt,
        outcome: &Outcome<S, Req>,
    ) -> bool {
        let classify = &self.rules.classify;
        let verdict = classify.classify(&self.context, attempt, outcome);
        if !verdict.is_retry() {
            if self.watched && verdict == Verdict::Success {
                self.settings.succeed(self.budget());
            }
            return true;
        }
        self.failed(verdict);
        false
    }

    /// A server that asks to wait or to stop is obeyed.
    #[cold]
    fn failed(&mut self, verdict: Verdict) {
        self.budget().record_failure();
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
