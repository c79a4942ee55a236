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
use crate::{DelaySource, Event, RetryInfo, StopReason, nested, retry_after};

/// All that a call keeps while an attempt is out, and what is decided after it.
///
/// In this order, so that nothing large follows what ends in padding: together with the padding before it,
/// it would be copied once more on the way of every call.
#[repr(C)]
pub(crate) struct Call<S, P, O, Req>
where
    P: Requests<Req>,
    O: Observe,
{
    protocol: P,
    settings: Arc<Settings>,
    /// With `saved`, what further attempts are made from, as long as there may be any.
    service: Option<S>,
    /// Boxed, since most calls never wait: it keeps the future small.
    wait: Option<Box<Wait<Req>>>,
    saved: Option<P::Saved>,
    context: P::Context,
    /// No attempt goes out at this instant or later.
    last_start: Deadline,
    attempt: Attempt,
    record: O::Record,
}

/// What a call has besides once it has to wait.
struct Wait<Req> {
    schedule: Schedule,
    step: Step,
    /// All waits of this call so far.
    slept: Duration,
    /// How many attempts the server did not process.
    unprocessed: u32,
    /// How many retries layers below sent.
    below: u32,
    /// Whether the one free retry is used up.
    had_free_retry: bool,
    /// The 1-based retry that the user's backoff rule was asked about last.
    retry: u32,
    /// What goes out after the wait; one that is free has no permit.
    next: Option<(Req, Option<Permit>)>,
}

enum Step {
    Sleeping(Pin<Box<Sleep>>),
    /// A zero sleep, without the millisecond that tokio's timer would make of it.
    Yielding,
    Readying,
}

impl<S, P, O, Req> Call<S, P, O, Req>
where
    P: Requests<Req>,
    O: Observe,
{
    #[inline]
    pub(crate) fn new(
        protocol: P,
        record: O::Record,
        settings: Arc<Settings>,
        context: P::Context,
        last_start: Deadline,
        service: Option<S>,
        saved: Option<P::Saved>,
    ) -> Self {
        Self {
            protocol,
            record,
            settings,
            context,
            last_start,
            service,
            saved,
            attempt: Attempt::PRIMARY,
            wait: None,
        }
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Polls the current attempt. Returns how many retries layers below sent meanwhile.
    #[inline]
    pub(crate) fn poll<R>(&self, poll: impl FnOnce() -> R) -> (R, u32) {
        nested::count(|| self.record.enter(self.attempt, poll))
    }
}

impl<S, P, O, Req> Call<S, P, O, Req>
where
    S: Service<Req>,
    P: Outcomes<Req, S::Response, S::Error>,
    O: Observe,
{
    #[inline]
    pub(crate) fn judge(&mut self, outcome: &Outcome<S, Req>) -> Verdict {
        let protocol = &self.protocol;
        let verdict = protocol.classify(&self.context, &self.attempt, outcome);
        let describe = || protocol.describe(outcome);
        self.record
            .attempt_ended(self.attempt, Some(verdict), describe);
        verdict
    }

    /// The call ends with a success.
    #[inline]
    pub(crate) fn succeed(&mut self) {
        if self.settings.deposits {
            self.budget().deposit();
        }
        // The caller may keep this future, which needs no copy of the request any longer.
        self.saved = None;
        self.service = None;
        self.stop(StopReason::Success);
    }

    /// Decides what follows a time limit that ran out, with this answer.
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
            Some(verdict) => self.decide(verdict, answer),
            None => Err(self.end(answer, StopReason::DeadlineExceeded)),
        }
    }

    /// Decides what follows a failure: another attempt, or the end with this outcome.
    #[cold]
    #[inline(never)]
    pub(crate) fn after(
        &mut self,
        verdict: Verdict,
        outcome: Outcome<S, Req>,
    ) -> Result<(), Outcome<S, Req>> {
        let protocol = &self.protocol;
        // Another retry layer, below or above, sees to this failure. One that never repeats anything
        // has no say in it.
        if verdict.is_retry()
            && self.settings.may_repeat
            && (protocol.was_given_up(&mut self.context, &outcome)
                || protocol.is_retried_above(&self.context))
        {
            return Err(self.end(outcome, StopReason::Nested));
        }
        self.decide(verdict, outcome)
    }

    /// When another attempt follows, the response is dropped here, before the wait. The outcome is taken
    /// by value so that one that is a success stays in registers.
    fn decide(
        &mut self,
        verdict: Verdict,
        outcome: Outcome<S, Req>,
    ) -> Result<(), Outcome<S, Req>> {
        // The layer that pays into the budget receives every outcome that this one does not retry.
        let is_ours = verdict.is_retry() || self.settings.deposits;
        let is_free = verdict == Verdict::Unprocessed && self.has_a_free_retry();
        if verdict.is_failure() && is_ours && !is_free {
            self.budget().record_failure();
        }
        let decided = match verdict {
            Verdict::Retry { reason, hint } => self.prepare_next(Some(reason), hint, &outcome),
            Verdict::Unprocessed => self.prepare_next(None, None, &outcome),
            _ => Err(StopReason::Fatal),
        };
        decided.map_err(|reason| self.end(outcome, reason))
    }

    /// Makes what goes out next, after a failure with a `reason`, or one that the server did not process.
    ///
    /// The budget comes last, so that nothing stops an attempt that was paid for.
    fn prepare_next(
        &mut self,
        reason: Option<RetryReason>,
        hint: Option<Hint>,
        outcome: &Outcome<S, Req>,
    ) -> Result<(), StopReason> {
        let settings = &self.settings;
        let protocol = &self.protocol;
        if settings.mode == Mode::Off {
            return Err(StopReason::Off);
        }
        let below = self.wait.as_ref().map_or(0, |wait| wait.below);
        if self.attempt.number().saturating_add(below) >= settings.max_attempts {
            return Err(match below {
                0 => StopReason::AttemptsExhausted,
                _ => StopReason::Nested,
            });
        }
        let is_shadow = settings.mode == Mode::Shadow;
        let request = match is_shadow {
            true if protocol.may_retry(&self.context) => None,
            true => return Err(StopReason::NotResendable),
            false => Some(self.copy().ok_or(StopReason::NotResendable)?),
        };
        let (delay, source) = match reason {
            None if self.has_a_free_retry() => (Duration::ZERO, DelaySource::Unprocessed),
            None => self.delay(RetryReason::Transient, hint, outcome)?,
            Some(reason) => self.delay(reason, hint, outcome)?,
        };
        if !self.last_start.leaves(delay) {
            return Err(StopReason::DeadlineExceeded);
        }
        let permit = match source {
            DelaySource::Unprocessed => None,
            _ => Some(
                self.budget()
                    .withdraw()
                    .ok_or(StopReason::BudgetExhausted)?,
            ),
        };
        self.record.send(Event::RetryScheduled {
            attempt: self.attempt,
            delay,
            source,
            is_shadow,
        });
        let Some(request) = request else {
            if let Some(permit) = permit {
                permit.spend();
            }
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

    /// The call ends with this outcome.
    #[cold]
    pub(crate) fn end(
        &mut self,
        mut outcome: Outcome<S, Req>,
        reason: StopReason,
    ) -> Outcome<S, Req> {
        self.settings.counters.stop(reason);
        self.stop(reason);
        let is_on = self.settings.mode == Mode::On;
        if is_in_vain(reason) && self.settings.may_repeat {
            self.protocol.give_up(&self.context, &mut outcome);
        }
        let outcome = match (self.attempt.number(), reason) {
            // What the other layer has to say of it stays.
            (1, StopReason::Fatal | StopReason::Nested) => outcome,
            _ if is_on => self.with_info(outcome, reason),
            _ => outcome,
        };
        // A body that still streams need not be recorded any more, and neither a token nor a place in
        // a queue is kept for as long as somebody keeps this future.
        self.saved = None;
        self.wait = None;
        self.service = None;
        outcome
    }

    /// The success of a retry.
    #[cold]
    #[inline(never)]
    pub(crate) fn recovered(&self, outcome: Outcome<S, Req>) -> Outcome<S, Req> {
        self.settings.counters.stop(StopReason::Success);
        self.with_info(outcome, StopReason::Success)
    }

    /// The outcome, with word of what it took.
    fn with_info(&self, mut outcome: Outcome<S, Req>, stop: StopReason) -> Outcome<S, Req> {
        let slept = self.wait.as_ref().map(|wait| wait.slept);
        let info = RetryInfo::new(self.attempt.number(), slept.unwrap_or_default(), stop);
        self.protocol.attach(&mut outcome, info);
        outcome
    }

    /// The next attempt's request, if there can be one.
    fn copy(&mut self) -> Option<Req> {
        let attempt = Attempt::retry(self.attempt.number() + 1);
        match attempt.number() == self.settings.max_attempts {
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
        let longest = self.settings.max_retry_after;
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
        Ok(
            match floor.map(|floor| retry_after::delay(backoff, floor, schedule.random())) {
                Some(delay) if delay > backoff => (delay, DelaySource::Server),
                _ => (backoff, source),
            },
        )
    }

    /// Layers below sent this many retries, which count as attempts of this call.
    #[cold]
    pub(crate) fn add_retries_below(&mut self, retries: u32) {
        let wait = self.wait();
        wait.below = wait.below.saturating_add(retries);
    }

    /// Whether the next [`Verdict::Unprocessed`] is the call's first.
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

    /// Sends the attempt that [`after`](Self::after) decided on, once it is time and the service is
    /// ready for it.
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
        if let Some(permit) = permit {
            permit.spend();
        }
        Poll::Ready(Ok(self.record.enter(attempt, || service.call(request))))
    }

    /// The call ends with the current attempt's outcome.
    pub(crate) fn stop(&mut self, reason: StopReason) {
        let winner = (reason == StopReason::Success).then_some(self.attempt);
        self.record.send(Event::CallEnded { reason, winner });
    }
}

/// Whether the request was retried as often as is right, so that a layer above should not retry it either.
fn is_in_vain(reason: StopReason) -> bool {
    matches!(
        reason,
        StopReason::AttemptsExhausted
            | StopReason::RetryForbidden
            | StopReason::RetryAfterTooLong
            | StopReason::DeadlineExceeded
            | StopReason::BudgetExhausted
            | StopReason::Nested
    )
}
