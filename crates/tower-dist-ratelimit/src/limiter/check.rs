use std::{
    future::Future,
    mem,
    pin::Pin,
    slice,
    task::{Context, Poll},
};

use super::Limiter;
use crate::{
    Decided, Decision, Observer, Rejection,
    backend::{Answer, BackendError, Charge},
    http::tell_delay,
    key::{IntoKey, KeySink},
    ladder::Leave,
    limits::{Outcome, Question, Waiting},
};

type Made = Poll<Result<Decision, BackendError>>;

/// The decision on one charge. By hand, because it is written where the caller gets it: an `async` function moves it in
/// pieces, which takes as long as hashing the key.
pub(super) struct Check<'a, K, O: Observer> {
    limiter: &'a Limiter<O>,
    cost: u64,
    /// Whether the observer is told: not of who only looks.
    told: bool,
    /// Until the store is asked.
    key: Option<K>,
    /// In a box, so that not every future is as long as a key.
    later: Option<Box<(Question, Waiting)>>,
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
            key: Some(key),
            later: None,
        }
    }

    #[inline]
    pub(super) fn look(limiter: &'a Limiter<O>, key: K) -> Self {
        let mut look = Self::new(limiter, key, 0);
        look.told = false;
        look
    }

    /// Asks the store; without making what only those need who do not get an answer at once.
    #[inline(always)]
    fn ask(&mut self, key: K, cx: &mut Context<'_>) -> Made {
        let limiter = self.limiter;
        if limiter.quota.is_some()
            && let Err(error) = limiter.check_quota()
        {
            return Poll::Ready(Err(error));
        }
        let limits = &*limiter.limits;
        let mut sink = KeySink::new();
        let _ = sink.key(|sink| key.write(sink));
        let Some(alone) = &limits.alone else {
            return self.ask_store(&mut sink, cx);
        };
        let decision = alone.charge(sink.bytes(), self.cost);
        if decision.allowed || !limiter.watched {
            self.tell_if_allowed(&sink, &decision);
            return Poll::Ready(Ok(decision));
        }
        let answer = Some((Answer::Done(false), Leave::Quiet));
        self.go_on(sink, decision, answer, cx)
    }

    /// Asks a store that can fail, or be late. The key is moved only where it has to outlive this.
    #[inline(never)]
    fn ask_store(&mut self, sink: &mut KeySink, cx: &mut Context<'_>) -> Made {
        let limiter = self.limiter;
        let limits = &*limiter.limits;
        let mut out = Decision::default();
        let Some(leave) = limits.ladder.leave_if_closed() else {
            return self.go_on(mem::replace(sink, KeySink::new()), out, None, cx);
        };
        let charge = Charge {
            quota: limiter.quota,
            ..Charge::new(limiter.id, sink.bytes(), self.cost)
        };
        let (charges, decisions) = (slice::from_ref(&charge), slice::from_mut(&mut out));
        match limits.backend.acquire(charges, decisions) {
            Answer::Done(allowed) if allowed || !limiter.watched => {
                limits.ladder.answered_at_once(leave, &limiter.observer);
                self.tell_if_allowed(sink, &out);
                Poll::Ready(Ok(out))
            }
            answer => self.go_on(
                mem::replace(sink, KeySink::new()),
                out,
                Some((answer, leave)),
                cx,
            ),
        }
    }

    #[inline]
    fn tell_if_allowed(&self, sink: &KeySink, decision: &Decision) {
        if !decision.allowed || !self.told {
            return;
        }
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        let asked = self.limiter.asked(0..sink.bytes().len(), self.cost);
        observer.allowed(&Decided::one(limits, &asked, decision));
        if !decision.delay.is_zero() {
            observer.waited(decision.delay);
        }
    }

    /// Asks a store that is watched, or makes something of another answer than a decision.
    #[cold]
    fn go_on(
        &mut self,
        sink: KeySink,
        decision: Decision,
        answer: Option<(Answer, Leave)>,
        cx: &mut Context<'_>,
    ) -> Made {
        let limiter = self.limiter;
        let Limiter {
            limits, observer, ..
        } = limiter;
        let asked = limiter.asked(0..sink.bytes().len(), self.cost);
        let mut question = Question::one(sink, asked, decision);
        let outcome = match answer {
            None => limits.ask(&mut question, observer),
            Some((answer, leave)) => limits.outcome(&mut question, answer, leave, observer),
        };
        match outcome {
            Outcome::Later(waiting) => self.wait(Box::new((question, waiting)), cx),
            outcome => Poll::Ready(self.decided(&outcome, &mut question)),
        }
    }

    #[cold]
    fn wait(&mut self, mut later: Box<(Question, Waiting)>, cx: &mut Context<'_>) -> Made {
        let (question, waiting) = &mut *later;
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        match waiting.poll(limits, question, observer, cx) {
            Poll::Ready(outcome) => Poll::Ready(self.decided(&outcome, question)),
            Poll::Pending => {
                self.later = Some(later);
                Poll::Pending
            }
        }
    }

    /// What comes of it, told to the observer.
    fn decided(
        &self,
        outcome: &Outcome,
        question: &mut Question,
    ) -> Result<Decision, BackendError> {
        let Limiter {
            limits,
            observer,
            shadow,
            ..
        } = self.limiter;
        match *outcome {
            _ if !self.told => {}
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(limits, question, reason);
                if *shadow {
                    observer.shadowed(&rejection);
                } else {
                    observer.rejected(&rejection);
                }
            }
            Outcome::Pass | Outcome::Later(_) => {
                observer.allowed(&Decided::new(limits, question));
                tell_delay(observer, question);
            }
        }
        match (question.cause.take(), question.decisions.first()) {
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

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Made {
        match (self.key.take(), self.later.take()) {
            (Some(key), _) => self.ask(key, cx),
            (None, Some(later)) => self.wait(later, cx),
            (None, None) => panic!("polled again after it was ready"),
        }
    }
}

impl<K, O: Observer> Drop for Check<'_, K, O> {
    fn drop(&mut self) {
        if self.told && self.later.is_some() {
            self.limiter.observer.cancelled();
        }
    }
}
