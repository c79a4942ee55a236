//! The end of a call.

use tower_attempt::{Mode, Observe, Outcomes, Record};
use tower_service::Service;

use super::super::Outcome;
use super::Call;
use crate::{Event, RetryInfo, StopReason};

impl<S, P, O, Req> Call<S, P, O, Req>
where
    S: Service<Req>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
{
    /// Ends the call with a success.
    #[inline]
    pub(crate) fn succeed(&mut self) {
        if self.settings.deposits {
            self.budget().deposit();
        }
        // The caller may keep this future, which no longer needs the copy of the request.
        self.saved = None;
        self.service = None;
        self.stop(StopReason::Success);
    }

    /// Ends the call with this outcome.
    #[cold]
    pub(crate) fn end(
        &mut self,
        mut outcome: Outcome<S, Req>,
        reason: StopReason,
    ) -> Outcome<S, Req> {
        self.settings.counters.stop(reason);
        self.stop(reason);
        let is_in_vain = !matches!(
            reason,
            StopReason::Fatal | StopReason::NotResendable | StopReason::NotReady
        );
        // Layers above should not retry this request either.
        if is_in_vain && self.settings.may_repeat {
            self.protocol.give_up(&self.context, &mut outcome);
        }
        let is_on = self.settings.mode == Mode::On;
        let outcome = match (self.attempt.number(), reason) {
            // The report of the other layer stays.
            (1, StopReason::Fatal | StopReason::Nested) => outcome,
            _ if is_on => self.with_info(outcome, reason),
            _ => outcome,
        };
        // The caller may keep this future. It must not record a body that still streams, nor hold a token or a place in
        // a queue.
        self.saved = None;
        self.wait = None;
        self.service = None;
        outcome
    }

    /// Ends the call with the success of a retry.
    #[cold]
    #[inline(never)]
    pub(crate) fn recovered(&self, outcome: Outcome<S, Req>) -> Outcome<S, Req> {
        self.settings.counters.stop(StopReason::Success);
        self.with_info(outcome, StopReason::Success)
    }

    /// Adds the call's report to the outcome.
    fn with_info(&self, mut outcome: Outcome<S, Req>, stop: StopReason) -> Outcome<S, Req> {
        let slept = self.wait.as_ref().map(|wait| wait.slept);
        let info = RetryInfo {
            attempts: self.attempt.number(),
            slept: slept.unwrap_or_default(),
            stop,
        };
        self.protocol.attach(&mut outcome, info);
        outcome
    }

    /// Ends the call with the current attempt's outcome.
    fn stop(&mut self, reason: StopReason) {
        let winner = (reason == StopReason::Success).then_some(self.attempt);
        self.record.send(Event::CallEnded { reason, winner });
    }
}
