use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::time::{Sleep, sleep};
use tower_attempt::{Attempt, Classify, Deadline, Permit, Replays, RetryReason, Rules, Verdict};
use tower_service::Service;

use super::Outcome;
use crate::backoff::Schedule;
use crate::settings::Settings;
use crate::{DelaySource, Observer, RetryInfo, StopReason, retry_after};

/// All that a call keeps while an attempt is out, and what is decided after it.
pub(crate) struct Call<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    rules: Rules<C, R>,
    observer: O,
    settings: Arc<Settings>,
    context: C::Context,
    deadline: Deadline,
    /// What further attempts are made from, as long as there may be any.
    service: Option<S>,
    saved: Option<R::Saved>,
    attempt: Attempt,
    /// Boxed, since most calls never wait: it keeps the future small.
    wait: Option<Box<Wait<Req>>>,
    ended: bool,
}

/// What a call has besides once it has to wait.
struct Wait<Req> {
    schedule: Schedule,
    step: Step,
    /// All waits of this call so far.
    slept: Duration,
    /// What goes out after the wait.
    next: Option<(Req, Permit)>,
}

enum Step {
    Sleeping(Pin<Box<Sleep>>),
    /// A zero sleep, without the millisecond that tokio's timer would make of it.
    Yielding,
    Readying,
}

impl<S, C, R, O, Req> Call<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    #[inline]
    pub(crate) fn new(
        rules: Rules<C, R>,
        observer: O,
        settings: Arc<Settings>,
        context: C::Context,
        deadline: Deadline,
        service: Option<S>,
        saved: Option<R::Saved>,
    ) -> Self {
        observer.attempt_started(&Attempt::PRIMARY);
        Self {
            rules,
            observer,
            settings,
            context,
            deadline,
            service,
            saved,
            attempt: Attempt::PRIMARY,
            wait: None,
            ended: false,
        }
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    #[inline]
    pub(crate) fn judge(&self, outcome: &Outcome<S, Req>) -> Verdict {
        let classify = &self.rules.classify;
        classify.classify(&self.context, &self.attempt, outcome)
    }

    /// The call ends with a success.
    #[inline]
    pub(crate) fn succeed(&mut self) {
        if self.settings.knobs.deposits {
            self.settings.knobs.budget.deposit();
        }
        self.stop(StopReason::Success);
    }

    /// Decides what follows a failure: another attempt, or the end with this outcome.
    ///
    /// When another follows, the response is dropped here, before the wait. The outcome is taken
    /// by value so that one that is a success stays in registers.
    #[cold]
    #[inline(never)]
    pub(crate) fn after(
        &mut self,
        verdict: Verdict,
        outcome: Outcome<S, Req>,
    ) -> Result<(), Outcome<S, Req>> {
        let decided = match verdict {
            Verdict::Retry { reason, hint } => self.prepare_next(reason, hint, &outcome),
            _ => Err(StopReason::Fatal),
        };
        decided.map_err(|reason| {
            self.stop(reason);
            // A body that still streams need not be recorded any more.
            self.saved = None;
            match (self.attempt.number(), reason) {
                (1, StopReason::Fatal) => outcome,
                _ => self.with_info(outcome, reason),
            }
        })
    }

    /// The budget comes last, so that nothing stops an attempt that was paid for.
    fn prepare_next(
        &mut self,
        reason: RetryReason,
        hint: Option<Duration>,
        outcome: &Outcome<S, Req>,
    ) -> Result<(), StopReason> {
        if self.attempt.number() >= self.settings.knobs.max_attempts {
            return Err(StopReason::AttemptsExhausted);
        }
        let request = self.copy().ok_or(StopReason::NotRepeatable)?;
        if hint.is_some_and(|hint| hint > self.settings.knobs.max_hint) {
            return Err(StopReason::HintTooLong);
        }
        let (delay, source) = self.delay(reason, hint, outcome);
        if !self.deadline.leaves(delay) {
            return Err(StopReason::DeadlineExceeded);
        }
        let permit = self.settings.knobs.budget.withdraw();
        let permit = permit.ok_or(StopReason::BudgetExhausted)?;

        let wait = self.wait();
        wait.next = Some((request, permit));
        wait.slept = wait.slept.saturating_add(delay);
        wait.step = match delay {
            Duration::ZERO => Step::Yielding,
            delay => Step::Sleeping(Box::pin(sleep(delay))),
        };
        self.observer.retry_scheduled(&self.attempt, delay, source);
        Ok(())
    }

    /// The outcome, with word of what it took.
    #[cold]
    #[inline(never)]
    pub(crate) fn with_info(
        &self,
        mut outcome: Outcome<S, Req>,
        stop: StopReason,
    ) -> Outcome<S, Req> {
        let slept = self.wait.as_ref().map(|wait| wait.slept);
        let info = RetryInfo::new(self.attempt.number(), slept.unwrap_or_default(), stop);
        self.rules.classify.attach(&mut outcome, info);
        outcome
    }

    /// The next attempt's request, if there can be one.
    fn copy(&mut self) -> Option<Req> {
        let attempt = Attempt::retry(self.attempt.number() + 1);
        match attempt.number() == self.settings.knobs.max_attempts {
            true => self.rules.replays.last(self.saved.take()?, attempt),
            false => self.rules.replays.again(self.saved.as_ref()?, attempt),
        }
    }

    fn delay(
        &mut self,
        reason: RetryReason,
        hint: Option<Duration>,
        outcome: &Outcome<S, Req>,
    ) -> (Duration, DelaySource) {
        let retry = self.attempt.number() - 1;
        let custom = self.rules.classify.backoff(retry, outcome);
        let schedule = &mut self.wait().schedule;
        let (backoff, source) = match custom {
            Some(delay) => (delay, DelaySource::Custom),
            None => (schedule.next_after(reason), DelaySource::Backoff),
        };
        match hint.map(|hint| retry_after::delay(backoff, hint, schedule.random())) {
            Some(delay) if delay > backoff => (delay, DelaySource::Server),
            _ => (backoff, source),
        }
    }

    fn wait(&mut self) -> &mut Wait<Req> {
        self.wait.get_or_insert_with(|| {
            Box::new(Wait {
                schedule: self.settings.schedule(),
                step: Step::Readying,
                slept: Duration::ZERO,
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
        let Some((request, permit)) = wait.next.take() else {
            panic!("polled after it was ready");
        };
        permit.spend();
        self.attempt = Attempt::retry(self.attempt.number() + 1);
        self.observer.attempt_started(&self.attempt);
        Poll::Ready(Ok(service.call(request)))
    }

    /// The call ends with the current attempt's outcome.
    pub(crate) fn stop(&mut self, reason: StopReason) {
        self.ended = true;
        self.observer.stopped(&self.attempt, reason);
    }
}

impl<S, C, R, O, Req> Drop for Call<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    fn drop(&mut self) {
        if !self.ended {
            self.observer.cancelled(&self.attempt);
        }
    }
}
