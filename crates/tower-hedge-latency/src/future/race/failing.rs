//! Failures of attempts, and their consequences.

use std::future::Future;
use std::time::Duration;

use tokio::time::Instant;
use tower_attempt::{Attempt, Deadline, Hint, Observe, Outcomes, Record, Verdict};
use tower_service::Service;

use super::super::Outcome;
use super::super::timing::Due;
use super::Race;
use crate::elsewhere::Elsewhere;
use crate::losers::Losers;

impl<F, S, P, O, A, L, Req> Race<F, S, P, O, A, L, Req>
where
    F: Future<Output = Outcome<S, Req>>,
    S: Service<Req, Future = F>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
    A: Elsewhere<S, Req>,
    L: Losers<F>,
{
    /// Classifies an attempt's outcome, once. Returns whether it decides the race, which every outcome does that a
    /// retry would not improve.
    #[inline]
    pub(in crate::future) fn decides(
        &mut self,
        attempt: &Attempt,
        outcome: &Outcome<S, Req>,
    ) -> bool {
        let verdict = self.protocol.classify(&self.context, attempt, outcome);
        self.succeeded = verdict == Verdict::Success;
        self.is_retryable = verdict.is_retry();
        let describe = || self.protocol.describe(outcome);
        self.record.attempt_ended(*attempt, Some(verdict), describe);
        if !verdict.is_retry() {
            if verdict.is_failure() {
                self.record_failure(attempt, outcome);
            }
            return true;
        }
        self.failed(attempt, verdict, outcome);
        false
    }

    /// Obeys a server that demands a wait or forbids further attempts.
    #[cold]
    fn failed(&mut self, attempt: &Attempt, verdict: Verdict, outcome: &Outcome<S, Req>) {
        self.record_failure(attempt, outcome);
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
        self.hurry =
            self.sends_on_failure() && !self.is_readying() && !matches!(self.due(), Due::Never);
    }

    #[cold]
    fn record_failure(&mut self, attempt: &Attempt, outcome: &Outcome<S, Req>) {
        // The layer above records the primary's failure on a shared budget, if it receives that failure.
        let is_seen_above = *attempt == Attempt::PRIMARY && !self.settings.tuning.deposits;
        // A retry layer below that gave up has recorded the failure.
        let protocol = &self.protocol;
        if !protocol.was_given_up(&mut self.context, outcome) && !is_seen_above {
            self.budget().record_failure();
        }
    }

    /// Holds hedges back until `wait` has passed. The next hedge is sent then if it was due earlier, or if the server
    /// demanded exactly this wait.
    fn push_back(&mut self, wait: Duration, exactly: bool) {
        let now = Instant::now();
        let end = match Due::after(now, Some(wait)) {
            Due::Never => return self.call_off(),
            Due::Now => now,
            Due::At(end) => end,
        };
        let end = self.earliest.map_or(end, |earliest| earliest.max(end));
        self.earliest = Some(end);
        let due = self.timing.due(&self.settings, self.stage);
        if exactly || !matches!(due, Due::At(due) if due > end) {
            self.timing.move_to(self.stage, end);
        }
    }

    /// Cancels all further hedges, due ones included.
    fn call_off(&mut self) {
        self.spare = None;
        self.deadline = Deadline::at(Instant::now());
    }

    /// Whether the call continues after the failure of its first attempt.
    ///
    /// Without another attempt in flight it ends, because retries belong to another layer. With hedges on failure the
    /// next hedge is sent, which may be a hedge that waits for the permit of the failed attempt. It is polled once: a
    /// hedge whose service is not ready then does not delay the failure.
    pub(in crate::future) fn survives_failure(&self) -> bool {
        self.has_sent() || self.hurry || self.sends_on_failure() && self.is_readying()
    }

    pub(in crate::future) fn primary_failed(&mut self) {
        self.timing.primary_failed();
    }

    /// Whether the failure of an attempt sends a hedge now.
    fn sends_on_failure(&self) -> bool {
        self.settings.tuning.on_failure && self.may_send()
    }

    /// Whether a due hedge waits for its service.
    fn is_readying(&self) -> bool {
        self.hedges.iter().any(|hedge| !hedge.is_sent())
    }

    /// Whether a hedge may be sent now: before the deadline, and not during a wait that a server demanded.
    pub(super) fn may_send(&self) -> bool {
        let is_over = |earliest| earliest <= Instant::now();
        self.deadline.leaves(Duration::ZERO) && self.earliest.is_none_or(is_over)
    }
}
