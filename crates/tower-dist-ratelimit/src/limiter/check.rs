use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Limiter, allowed, rejected};
use crate::{
    Decided, Decision,
    backend::BackendError,
    key::{IntoKey, KeySink},
    limits::{Outcome, Question, Rule, Waiting},
    observe::Undecided,
};

type Made = Result<Decision, BackendError>;

/// The decision on one request. Written by hand, because an `async` function moves the decision in pieces, which costs as
/// much as hashing the key.
pub(super) struct CheckFuture<'a, K> {
    limiter: &'a Limiter,
    /// `None` is the cost of each policy.
    cost: Option<u64>,
    /// `None` after the first poll.
    key: Option<K>,
    /// Boxed, because most decisions need no wait.
    later: Option<Box<(Question, Waiting, Undecided)>>,
}

// No field is pinned: the first poll moves the key out, and a pending decision is boxed.
impl<K> Unpin for CheckFuture<'_, K> {}

impl<'a, K: IntoKey> CheckFuture<'a, K> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter, key: K, cost: Option<u64>) -> Self {
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
        // All policies count the same key.
        let look = |_, rule: &Rule, sink: &mut KeySink| {
            if let Some(key) = key.take() {
                place = sink.key(|sink| key.write(sink)).0;
            }
            limiter.applies(rule, place.clone(), self.cost)
        };
        let mut question = None;
        let limits = &*limiter.limits;
        let passed = |decided: Decided<'_>, _| allowed(&decided);
        match limits.decide(&mut question, look, passed) {
            Outcome::Pass(decision) => Poll::Ready(Ok(decision)),
            Outcome::Reject(_) => Poll::Ready(rejected(limits, question.get_or_insert_default())),
            Outcome::Later(waiting) => {
                let undecided = Undecided(Some(limits.watch.clone()));
                let question = question.unwrap_or_default();
                self.later = Some(Box::new((question, waiting, undecided)));
                self.wait(cx)
            }
        }
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<Made> {
        let limits = &*self.limiter.limits;
        let (question, waiting, undecided) = &mut **self
            .later
            .as_mut()
            .expect("polled again after it was ready");
        let outcome = ready!(waiting.poll(limits, question, cx));
        undecided.0 = None;
        let passed = |decided: Decided<'_>, _| allowed(&decided);
        let decision = match limits.tell(outcome, question, passed) {
            Outcome::Pass(decision) => Ok(decision),
            Outcome::Reject(_) | Outcome::Later(_) => rejected(limits, question),
        };
        self.later = None;
        Poll::Ready(decision)
    }
}

impl<K: IntoKey> Future for CheckFuture<'_, K> {
    type Output = Made;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Made> {
        match self.key.take() {
            Some(key) => self.ask(key, cx),
            None => self.wait(cx),
        }
    }
}
