mod ending;

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tower_attempt::{
    Attempt, AttemptOutcome, Budget, Deadline, Elapsed, Hint, Mode, Observe, Outcomes, Permit,
    Record, Requests, RetryReason, Verdict,
};
use tower_service::Service;

use super::Outcome;
use crate::backoff::Schedule;
use crate::settings::Settings;
use crate::{DelaySource, Event, StopReason, nested, retry_after};

/// The state of a call, and the decisions after an attempt.
///
/// The fixed order of the fields keeps padding away from large fields. Otherwise each call would copy a large field and
/// its padding once more.
#[repr(C)]
pub(crate) struct Call<S, P: Requests<Req>, O: Observe, Req> {
    pub(crate) protocol: P,
    pub(crate) settings: Arc<Settings>,
    /// The service for further attempts, whose requests are made from `saved`. `None` if no retry was possible from the
    /// start, or if the call has ended.
    pub(crate) service: Option<S>,
    /// Boxed to keep the future small, because most calls never wait.
    pub(crate) wait: Option<Box<Wait<Req>>>,
    pub(crate) saved: Option<P::Saved>,
    pub(crate) context: P::Context,
    /// No retry is scheduled for this instant or later.
    pub(crate) last_start: Deadline,
    pub(crate) attempt: Attempt,
    pub(crate) record: O::Record,
}

/// The state that a call needs only once an attempt has failed or a layer below has sent a retry.
pub(crate) struct Wait<Req> {
    schedule: Schedule,
    step: Step,
    /// The sum of the delays before this call's retries.
    slept: Duration,
    /// The number of attempts that the server is known not to have processed.
    unprocessed: u32,
    /// The number of retries that layers below sent while this call polled its attempts.
    below: u32,
    /// Whether the call has used its one free retry. This retry follows a [`Verdict::Unprocessed`], and has neither a
    /// delay nor a token.
    had_free_retry: bool,
    /// The number of the last retry for the user's backoff rule, counted from 1. A free retry does not count. A
    /// [`Hint::Exactly`], such as gRPC's pushback, resets the count.
    retry: u32,
    /// The request of the next attempt with its permit from the budget. A free retry has no permit.
    next: Option<(Req, Option<Permit>)>,
}

enum Step {
    Sleeping(Pin<Box<Sleep>>),
    /// A zero delay, which tokio's timer would round up to a millisecond.
    Yielding,
    Readying,
}

impl<S, P, O, Req> Call<S, P, O, Req>
where
    S: Service<Req>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
{
    /// Polls the current attempt. Returns the number of retries that layers below sent during the poll.
    #[inline]
    pub(crate) fn poll<R>(&self, poll: impl FnOnce() -> R) -> (R, u32) {
        nested::count(|| self.record.enter(self.attempt, poll))
    }

    #[inline]
    pub(crate) fn classify_outcome(&mut self, outcome: &Outcome<S, Req>) -> Verdict {
        let protocol = &self.protocol;
        let verdict = protocol.classify(&self.context, &self.attempt, outcome);
        let describe = || protocol.describe(outcome);
        self.record
            .attempt_ended(self.attempt, Some(verdict), describe);
        verdict
    }

    /// Handles an expired time limit. `answer` is the outcome that the limit creates.
    #[cold]
    #[inline(never)]
    pub(crate) fn after_timeout(
        &mut self,
        elapsed: Elapsed,
        answer: Outcome<S, Req>,
    ) -> Result<(), Outcome<S, Req>> {
        let protocol = &self.protocol;
        let verdict = match elapsed {
            Elapsed::Attempt(_) => Some(protocol.timed_out(&self.context, &self.attempt, &answer)),
            _ => None,
        };
        let describe = || AttemptOutcome::TimedOut(elapsed);
        self.record.attempt_ended(self.attempt, verdict, describe);
        match verdict {
            Some(verdict) => self.decide(verdict, answer, false),
            None => Err(self.end(answer, StopReason::DeadlineExceeded)),
        }
    }

    /// Handles a failure: prepares another attempt, or ends the call with this outcome.
    ///
    /// The outcome is passed by value. If this function took a reference, the compiler would have to place every
    /// outcome of `poll` on the stack, even a success, which never comes here.
    #[cold]
    #[inline(never)]
    pub(crate) fn after(
        &mut self,
        verdict: Verdict,
        outcome: Outcome<S, Req>,
    ) -> Result<(), Outcome<S, Req>> {
        let given_up = self.protocol.was_given_up(&mut self.context, &outcome);
        self.decide(verdict, outcome, given_up)
    }

    /// Records an attempt's retryable failure on the budget, unless a mark shows that a layer below has recorded it
    /// there. A [`Verdict::Unprocessed`] is not recorded while the call still has its one free retry, which takes no
    /// token.
    ///
    /// If `is_passed_on` is true, a layer above may also handle the failure. Then only the layer that deposits into the
    /// budget records the failure.
    pub(crate) fn record_failure(
        &self,
        verdict: Verdict,
        outcome: &Outcome<S, Req>,
        is_passed_on: bool,
    ) {
        let is_ours = self.settings.deposits || !is_passed_on;
        let is_free = verdict == Verdict::Unprocessed && self.has_a_free_retry();
        let (protocol, budget) = (&self.protocol, self.budget());
        let counts = verdict.is_failure() && is_ours && !is_free;
        if counts && !protocol.is_recorded(outcome, budget) {
            budget.record_failure();
        }
    }

    /// Prepares another attempt and drops the outcome, or ends the call with the outcome. `given_up` is true if a layer
    /// below has given up on this request.
    fn decide(
        &mut self,
        verdict: Verdict,
        outcome: Outcome<S, Req>,
        given_up: bool,
    ) -> Result<(), Outcome<S, Req>> {
        // If this request is a retry of a layer above, that layer decides on a further retry. If a layer below has
        // given up on this request, this layer does not retry it, either.
        let is_nested = given_up || self.protocol.is_retried_above(&self.context);
        if is_nested && verdict.is_retry() && self.settings.can_retry {
            self.record_failure(verdict, &outcome, true);
            return Err(self.end(outcome, StopReason::Nested));
        }
        let request = match verdict.is_retry() {
            true => self.next_request(),
            false => Err(StopReason::Fatal),
        };
        let is_passed_on = match &request {
            // Shadow mode sends no retry and marks nothing.
            Ok(request) => request.is_none(),
            Err(reason) => !self.marks(*reason),
        };
        self.record_failure(verdict, &outcome, is_passed_on);
        let decided = request.and_then(|request| self.prepare_next(request, verdict, &outcome));
        decided.map_err(|reason| self.end(outcome, reason))
    }

    /// Returns the request of the next attempt, or `None` in shadow mode, which sends no further attempt.
    fn next_request(&mut self) -> Result<Option<Req>, StopReason> {
        let settings = &self.settings;
        if settings.mode == Mode::Off {
            return Err(StopReason::Off);
        }
        let below = self.wait.as_ref().map_or(0, |wait| wait.below);
        if self.attempt.number().saturating_add(below) >= settings.config.max_attempts() {
            return Err(match below {
                0 => StopReason::AttemptsExhausted,
                _ => StopReason::Nested,
            });
        }
        match settings.mode == Mode::Shadow {
            true if self.protocol.may_retry(&self.context) => Ok(None),
            true => Err(StopReason::NotResendable),
            false => Ok(Some(self.copy().ok_or(StopReason::NotResendable)?)),
        }
    }

    /// Prepares the next attempt after a failure.
    ///
    /// The withdrawal from the budget is the last check, so a retry that another check rules out takes no token.
    fn prepare_next(
        &mut self,
        request: Option<Req>,
        verdict: Verdict,
        outcome: &Outcome<S, Req>,
    ) -> Result<(), StopReason> {
        let (reason, (delay, source)) = match verdict {
            Verdict::Retry { reason, hint } => (Some(reason), self.delay(reason, hint, outcome)?),
            _ if self.has_a_free_retry() => (None, (Duration::ZERO, DelaySource::Unprocessed)),
            _ => (None, self.delay(RetryReason::Transient, None, outcome)?),
        };
        if !self.last_start.leaves(delay) {
            return Err(StopReason::DeadlineExceeded);
        }
        let budget = self.budget();
        let permit = match source {
            DelaySource::Unprocessed => None,
            _ => Some(budget.withdraw().ok_or(StopReason::BudgetExhausted)?),
        };
        self.record.send(Event::RetryScheduled {
            attempt: self.attempt,
            delay,
            source,
            is_shadow: request.is_none(),
        });
        let Some(request) = request else {
            permit.into_iter().for_each(Permit::spend);
            return Err(StopReason::Shadow);
        };
        let wait = self.wait();
        wait.next = Some((request, permit));
        wait.unprocessed += u32::from(matches!(reason, None | Some(RetryReason::NotSent)));
        wait.had_free_retry |= reason.is_none();
        wait.slept = wait.slept.saturating_add(delay);
        wait.step = match (source, delay) {
            (DelaySource::Unprocessed, _) => Step::Readying,
            (_, Duration::ZERO) => Step::Yielding,
            (_, delay) => Step::Sleeping(Box::pin(sleep(delay))),
        };
        Ok(())
    }

    /// Returns the request of the next attempt, or `None` if the request cannot be resent.
    fn copy(&mut self) -> Option<Req> {
        let attempt = Attempt::retry(self.attempt.number() + 1);
        match attempt.number() == self.settings.config.max_attempts() {
            true => self.protocol.last(self.saved.take()?, attempt),
            false => self.protocol.again(self.saved.as_ref()?, attempt),
        }
    }

    fn delay(
        &mut self,
        reason: RetryReason,
        hint: Option<Hint>,
        outcome: &Outcome<S, Req>,
    ) -> Result<(Duration, DelaySource), StopReason> {
        let longest = self.settings.config.max_retry_after();
        let floor = match hint {
            Some(Hint::Never) => return Err(StopReason::RetryForbidden),
            Some(Hint::AtLeast(time) | Hint::Exactly(time)) if time > longest => {
                return Err(StopReason::RetryAfterTooLong);
            }
            Some(Hint::Exactly(time)) => {
                let schedule = self.settings.schedule();
                let wait = self.wait();
                (wait.schedule, wait.retry) = (schedule, 0);
                return Ok((time, DelaySource::Server));
            }
            Some(Hint::AtLeast(time)) => Some(time),
            _ => None,
        };
        let retry = self.wait().retry.saturating_add(1);
        self.wait().retry = retry;
        let (context, attempt) = (&self.context, &self.attempt);
        let custom = self.protocol.backoff(context, attempt, retry, outcome);
        let schedule = &mut self.wait().schedule;
        let (backoff, source) = match custom {
            Some(delay) => (delay, DelaySource::Custom),
            None => (schedule.next_after(reason), DelaySource::Backoff),
        };
        let hinted = floor.map(|floor| retry_after::delay(backoff, floor, schedule.random()));
        Ok(match hinted {
            Some(delay) if delay > backoff => (delay, DelaySource::Server),
            _ => (backoff, source),
        })
    }

    /// Adds retries that layers below sent. They count towards this call's maximum number of attempts.
    #[cold]
    pub(crate) fn add_retries_below(&mut self, retries: u32) {
        let wait = self.wait();
        wait.below = wait.below.saturating_add(retries);
    }

    /// Whether the call still has its one free retry, for a [`Verdict::Unprocessed`].
    fn has_a_free_retry(&self) -> bool {
        self.wait.as_ref().is_none_or(|wait| !wait.had_free_retry)
    }

    fn budget(&self) -> &Budget {
        let own = self.protocol.budget(&self.context);
        own.unwrap_or(&self.settings.budget)
    }

    fn wait(&mut self) -> &mut Wait<Req> {
        self.wait.get_or_insert_with(|| {
            Box::new(Wait {
                schedule: self.settings.schedule(),
                step: Step::Readying,
                slept: Duration::ZERO,
                unprocessed: 0,
                below: 0,
                had_free_retry: false,
                retry: 0,
                next: None,
            })
        })
    }

    /// Waits for the delay and for the service to become ready, then sends the prepared attempt.
    #[inline(never)]
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Future, S::Error>> {
        let (Some(service), Some(wait)) = (&mut self.service, &mut self.wait) else {
            panic!("polled after it was ready");
        };
        match &mut wait.step {
            Step::Sleeping(sleep) => ready!(sleep.as_mut().poll(cx)),
            Step::Yielding => {
                wait.step = Step::Readying;
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            Step::Readying => {}
        }
        wait.step = Step::Readying;
        ready!(service.poll_ready(cx))?;
        let Some((mut request, permit)) = wait.next.take() else {
            panic!("polled after it was ready");
        };
        let previous = self.attempt.number() - wait.unprocessed;
        let attempt = Attempt::retry(self.attempt.number() + 1);
        let protocol = &self.protocol;
        protocol.mark(&mut self.context, attempt, previous, &mut request);
        self.record.send(Event::AttemptStarted { attempt });
        self.attempt = attempt;
        self.settings.counters.retry();
        nested::sent();
        permit.into_iter().for_each(Permit::spend);
        Poll::Ready(Ok(self.record.enter(attempt, || service.call(request))))
    }
}
