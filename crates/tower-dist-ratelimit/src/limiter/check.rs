use std::{
    future::Future,
    mem,
    pin::Pin,
    slice,
    task::{Context, Poll, ready},
};

use super::Limiter;
use crate::{
    Decided, Decision, Observer, Refusal,
    backend::{Answer, BackendError},
    http::tell_delay,
    key::{IntoKey, KeySink},
    ladder::Leave,
    limits::{Asked, Outcome, Question, Waiting},
};

type Made = Poll<Result<Decision, BackendError>>;

/// The decision on one charge. By hand, because it is written where the caller gets it: an `async` function moves it in
/// pieces, which takes as long as hashing the key.
pub(super) struct Check<'a, K, O: Observer> {
    limiter: &'a Limiter<O>,
    cost: u64,
    /// Whether the observer is told: not of who only looks.
    told: bool,
    step: Step<K>,
}

enum Step<K> {
    Ask(K),
    /// In a box, so that not every future is as long as a key.
    Wait(Box<(Question, Waiting)>),
    Done,
}

// Nothing in it stays where it is: the key is moved out, and what waits is in boxes.
impl<K, O: Observer> Unpin for Check<'_, K, O> {}

impl<'a, K: IntoKey, O: Observer> Check<'a, K, O> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter<O>, key: K, cost: u64) -> Self {
        Self {
            limiter,
            cost,
            told: true,
            step: Step::Ask(key),
        }
    }

    #[inline]
    pub(super) fn look(limiter: &'a Limiter<O>, key: K) -> Self {
        let mut look = Self::new(limiter, key, 0);
        look.told = false;
        look
    }

    /// Asks the store; without making what only those need who do not get an answer at once. If there is none in `out`,
    /// what there is instead.
    #[inline]
    fn ask(&mut self, key: K, out: &mut Decision, cx: &mut Context<'_>) -> Option<Made> {
        let limiter = self.limiter;
        if let Err(error) = limiter.check_quota() {
            return Some(Poll::Ready(Err(error)));
        }
        let mut sink = KeySink::new();
        let asked = limiter.asked(key, self.cost, &mut sink);
        let ladder = &limiter.limits.ladder;
        let Some(leave) = ladder.leave_if_closed() else {
            let question = Question::one(sink, asked, Decision::default());
            return Some(self.go_on(question, None, cx));
        };
        let charge = asked.charge(sink.bytes());
        let (charges, decided) = (slice::from_ref(&charge), slice::from_mut(out));
        match limiter.limits.backend.acquire(charges, decided) {
            Answer::Done(allowed) if allowed || !limiter.watched => {
                ladder.answered_at_once(leave, &limiter.observer);
                if allowed {
                    self.tell_allowed(&asked, out);
                }
                None
            }
            answer => {
                let question = Question::one(sink, asked, *out);
                Some(self.go_on(question, Some((answer, leave)), cx))
            }
        }
    }

    #[inline]
    fn tell_allowed(&self, asked: &Asked, decision: &Decision) {
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        if self.told {
            observer.allowed(&Decided::one(limits, asked, decision));
            if !decision.delay.is_zero() {
                observer.waited(decision.delay);
            }
        }
    }

    /// Asks a store that is watched, or makes something of another answer than a decision.
    #[cold]
    fn go_on(
        &mut self,
        mut question: Question,
        answer: Option<(Answer, Leave)>,
        cx: &mut Context<'_>,
    ) -> Made {
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        let outcome = match answer {
            None => limits.ask(&mut question, observer, None),
            Some((answer, leave)) => limits.outcome(&mut question, answer, leave, observer, None),
        };
        match outcome {
            Outcome::Later(waiting) => {
                self.step = Step::Wait(Box::new((question, waiting)));
                self.wait(cx)
            }
            outcome => Poll::Ready(self.decided(&outcome, question)),
        }
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Made {
        let Step::Wait(later) = &mut self.step else {
            panic!("polled again after it was ready");
        };
        let (question, waiting) = &mut **later;
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        let outcome = ready!(waiting.poll(limits, question, observer, cx));
        match mem::replace(&mut self.step, Step::Done) {
            Step::Wait(later) => Poll::Ready(self.decided(&outcome, later.0)),
            Step::Ask(_) | Step::Done => unreachable!("it waited a line above"),
        }
    }

    /// What comes of it, told to the observer.
    fn decided(&self, outcome: &Outcome, question: Question) -> Result<Decision, BackendError> {
        let Limiter {
            limits,
            observer,
            shadow,
            ..
        } = self.limiter;
        match *outcome {
            _ if !self.told => {}
            Outcome::Refuse(reason) => {
                let refusal = Refusal::new(limits, &question, reason);
                if *shadow {
                    observer.shadowed(&refusal);
                } else {
                    observer.refused(&refusal);
                }
            }
            Outcome::Pass | Outcome::Later(_) => {
                observer.allowed(&Decided::new(limits, &question));
                tell_delay(observer, &question);
            }
        }
        match (question.cause, question.decisions.first()) {
            (_, Some(decision)) if *shadow => Ok(Decision {
                allowed: true,
                ..*decision
            }),
            (None, Some(decision)) => Ok(*decision),
            (Some(error), _) => Err(error),
            (None, None) => Err(BackendError::new("an answer without a decision")),
        }
    }
}

impl<K: IntoKey, O: Observer> Future for Check<'_, K, O> {
    type Output = Result<Decision, BackendError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Made {
        if !matches!(self.step, Step::Ask(_)) {
            return self.wait(cx);
        }
        let mut decided = Poll::Ready(Ok(Decision::default()));
        if let Step::Ask(key) = mem::replace(&mut self.step, Step::Done)
            && let Poll::Ready(Ok(out)) = &mut decided
            && let Some(instead) = self.ask(key, out, cx)
        {
            decided = instead;
        }
        decided
    }
}

impl<K, O: Observer> Drop for Check<'_, K, O> {
    fn drop(&mut self) {
        if self.told && matches!(self.step, Step::Wait(_)) {
            self.limiter.observer.cancelled();
        }
    }
}
