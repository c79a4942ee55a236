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
        // The caller may keep the finished future. Drop the copy of the request and the service now.
        self.saved = None;
        self.service = None;
        self.stop(StopReason::Success);
    }

    /// Ends the call for a reason other than [`StopReason::Success`].
    #[cold]
    pub(crate) fn end(
        &mut self,
        mut outcome: Outcome<S, Req>,
        reason: StopReason,
    ) -> Outcome<S, Req> {
        self.settings.counters.stop(reason);
        self.stop(reason);
        // Marks the failure, if that is necessary and possible, so that layers above do not retry it.
        if self.marks(reason) {
            self.protocol
                .give_up(&self.context, &mut outcome, self.budget());
        }
        let is_on = self.settings.mode == Mode::On;
        let outcome = match (self.attempt.number(), reason) {
            // This layer has nothing to report. A report of a layer below stays.
            (1, StopReason::Fatal | StopReason::Nested) => outcome,
            _ if is_on => self.with_info(outcome, reason),
            _ => outcome,
        };
        // The caller may keep the finished future. Such a future must not continue to record a streaming body, hold a
        // token, or keep the service's place in a queue.
        self.saved = None;
        self.wait = None;
        self.service = None;
        outcome
    }

    /// Returns whether to mark the call's failure, so that layers above do not retry it. `reason` is why the call ends.
    pub(super) fn marks(&self, reason: StopReason) -> bool {
        match reason {
            StopReason::Fatal | StopReason::NotResendable | StopReason::NotReady => false,
            _ => self.settings.can_retry,
        }
    }

    /// Counts a call that succeeded with a retry. Over HTTP and gRPC, also adds the call's [`RetryInfo`] to a response.
    #[cold]
    #[inline(never)]
    pub(crate) fn recovered(&self, outcome: Outcome<S, Req>) -> Outcome<S, Req> {
        self.settings.counters.stop(StopReason::Success);
        self.with_info(outcome, StopReason::Success)
    }

    /// Over HTTP and gRPC, adds the call's [`RetryInfo`] to a response. Other outcomes stay the same.
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

    /// Sends the observer the event of the call's end.
    fn stop(&mut self, reason: StopReason) {
        let winner = (reason == StopReason::Success).then_some(self.attempt);
        self.record.send(Event::CallEnded { reason, winner });
    }
}
