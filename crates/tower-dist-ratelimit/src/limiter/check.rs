use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Limiter, allowed, rejected};
use crate::{
    Decided, Decision, Observer,
    backend::BackendError,
    key::{IntoKey, KeySink},
    limits::{Outcome, Question, Rule, Waiting},
};

type Made = Result<Decision, BackendError>;

/// The decision on one request. By hand, because it is written where the caller gets it: an `async` function moves it in
/// pieces, which takes as long as hashing the key.
pub(super) struct Check<'a, K, O: Observer> {
    limiter: &'a Limiter<O>,
    /// If it is not that of each policy.
    cost: Option<u64>,
    /// Until the backend is asked.
    key: Option<K>,
    /// In a box, so that not every future is as long as a key.
    later: Option<Box<(Question, Waiting)>>,
}

// Nothing in it stays where it is: the key is moved out, and what waits is in boxes.
impl<K, O: Observer> Unpin for Check<'_, K, O> {}

impl<'a, K: IntoKey, O: Observer> Check<'a, K, O> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter<O>, key: K, cost: Option<u64>) -> Self {
        Self {
            limiter,
            cost,
            key: Some(key),
            later: None,
        }
    }

    #[inline(always)]
    fn ask(&mut self, key: K, cx: &mut Context<'_>) -> Poll<Made> {
        let limiter = self.limiter;
        if limiter.quota.is_some()
            && let Err(error) = limiter.check_quota()
        {
            return Poll::Ready(Err(error));
        }
        let (mut key, mut place) = (Some(key), 0..0);
        // All policies have the same key.
        let look = |_, rule: &Rule, sink: &mut KeySink| {
            if let Some(key) = key.take() {
                place = sink.key(|sink| key.write(sink)).0;
            }
            limiter.applies(rule, place.clone(), self.cost)
        };
        let mut question = None;
        let limits = &*limiter.limits;
        let passed = |decided: Decided<'_>, _| allowed(&decided);
        match limits.decide(&mut question, &limiter.observer, look, passed) {
            Outcome::Pass(decision) => Poll::Ready(decision),
            Outcome::Reject(_) => Poll::Ready(rejected(limits, question.get_or_insert_default())),
            Outcome::Later(waiting) => {
                self.later = Some(Box::new((question.unwrap_or_default(), waiting)));
                self.wait(cx)
            }
        }
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Made> {
        let Limiter {
            limits, observer, ..
        } = self.limiter;
        let (question, waiting) = &mut **self
            .later
            .as_mut()
            .expect("polled again after it was ready");
        let outcome = ready!(waiting.poll(limits, question, observer, cx));
        let passed = |decided: Decided<'_>, _| allowed(&decided);
        let decision = match limits.tell(outcome, question, observer, passed) {
            Outcome::Pass(decision) => decision,
            Outcome::Reject(_) | Outcome::Later(_) => rejected(limits, question),
        };
        self.later = None;
        Poll::Ready(decision)
    }
}

impl<K: IntoKey, O: Observer> Future for Check<'_, K, O> {
    type Output = Made;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Made> {
        match self.key.take() {
            Some(key) => self.ask(key, cx),
            None => self.wait(cx),
        }
    }
}

impl<K, O: Observer> Drop for Check<'_, K, O> {
    fn drop(&mut self) {
        if self.later.is_some() {
            self.limiter.observer.cancelled();
        }
    }
}
