use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tower_attempt::{Attempt, Classify, Permit, Replays, RetryReason, Rules, Verdict};
use tower_service::Service;

use super::Outcome;
use crate::backoff::Schedule;
use crate::settings::Settings;
use crate::{DelaySource, Observer, StopReason, retry_after};

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
    repeat: Option<Repeat<S, R::Saved>>,
    attempt: Attempt,
    /// Boxed, since most calls never wait.
    wait: Option<Box<Wait<Req>>>,
    ended: bool,
}

/// What further attempts are made from.
pub(crate) struct Repeat<S, V> {
    service: S,
    /// `None` once the last copy is made.
    saved: Option<V>,
}

/// What a call has besides once it has to wait.
struct Wait<Req> {
    schedule: Schedule,
    /// What goes out after the wait.
    next: Option<(Req, Permit)>,
}

impl<S, V> Repeat<S, V> {
    pub(crate) fn new(service: S, saved: V) -> Self {
        let saved = Some(saved);
        Self { service, saved }
    }
}

impl<S, C, R, O, Req> Call<S, C, R, O, Req>
where
    S: Service<Req>,
    C: Classify<Req, S::Response, S::Error>,
    R: Replays<Req>,
    O: Observer,
{
    pub(crate) fn new(
        rules: Rules<C, R>,
        observer: O,
        settings: Arc<Settings>,
        context: C::Context,
        repeat: Option<Repeat<S, R::Saved>>,
    ) -> Self {
        let attempt = Attempt::PRIMARY;
        observer.attempt_started(&attempt);
        Self {
            rules,
            observer,
            settings,
            context,
            repeat,
            attempt,
            wait: None,
            ended: false,
        }
    }

    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }

    /// Decides what follows an outcome: another attempt after this delay, or the end.
    ///
    /// The budget comes last, so that nothing stops an attempt that was paid for.
    pub(crate) fn after(&mut self, outcome: &Outcome<S, Req>) -> Result<Duration, StopReason> {
        let knobs = &self.settings.knobs;
        let classify = &self.rules.classify;
        let (reason, hint) = match classify.classify(&self.context, &self.attempt, outcome) {
            Verdict::Retry { reason, hint } => (reason, hint),
            Verdict::Success => {
                if knobs.deposits {
                    knobs.budget.deposit();
                }
                return Err(StopReason::Success);
            }
            _ => return Err(StopReason::Fatal),
        };
        if self.attempt.number() >= knobs.max_attempts {
            return Err(StopReason::AttemptsExhausted);
        }
        let request = self.copy().ok_or(StopReason::NotRepeatable)?;
        if hint.is_some_and(|hint| hint > self.settings.knobs.max_hint) {
            return Err(StopReason::HintTooLong);
        }
        let permit = self.settings.knobs.budget.withdraw();
        let permit = permit.ok_or(StopReason::BudgetExhausted)?;

        let (delay, source) = self.delay(reason, hint, outcome);
        self.wait().next = Some((request, permit));
        self.observer.retry_scheduled(&self.attempt, delay, source);
        Ok(delay)
    }

    /// The next attempt's request, if there can be one.
    fn copy(&mut self) -> Option<Req> {
        let repeat = self.repeat.as_mut()?;
        let attempt = Attempt::retry(self.attempt.number() + 1);
        match attempt.number() == self.settings.knobs.max_attempts {
            true => self.rules.replays.last(repeat.saved.take()?, attempt),
            false => self.rules.replays.again(repeat.saved.as_ref()?, attempt),
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
                next: None,
            })
        })
    }

    /// Sends the attempt that [`after`](Self::after) decided on, once the service is ready for it.
    pub(crate) fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Future, S::Error>> {
        let (Some(repeat), Some(wait)) = (&mut self.repeat, &mut self.wait) else {
            unreachable!("only what can be repeated waits");
        };
        ready!(repeat.service.poll_ready(cx))?;
        let Some((request, permit)) = wait.next.take() else {
            unreachable!("decided before the wait");
        };
        permit.spend();
        self.attempt = Attempt::retry(self.attempt.number() + 1);
        self.observer.attempt_started(&self.attempt);
        Poll::Ready(Ok(repeat.service.call(request)))
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
