use std::{
    pin::Pin,
    task::{Context, Poll, ready},
};

use super::{Limiter, decision, sink_of};
use crate::{
    Decision,
    backend::BackendError,
    key::{IntoKey, KeyBytes},
    limits::{Check, Outcome, Pending},
};

pub(super) type DecisionResult = Result<Decision, BackendError>;

/// The future of [`Limiter::check`] and [`Limiter::check_n`]. It is written by hand, because an `async` function moves
/// the decision in pieces, which costs as much as hashing the key.
pub(super) struct CheckFuture<'a, K> {
    limiter: &'a Limiter,
    /// `None` if each policy uses its own cost.
    cost: Option<u64>,
    /// `None` after the first poll.
    key: Option<K>,
    /// A trait object, because the compiler would otherwise not inline the check of an empty option at the end.
    later: Option<Pin<Box<dyn Future<Output = DecisionResult> + Send + Sync>>>,
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
    fn start(&mut self, key: K, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let limiter = self.limiter;
        let limits = &*limiter.limits;
        if let (Some((single, rule)), None) = (limits.unobserved(), &limiter.quota) {
            let cost = self.cost.unwrap_or(rule.policy.cost);
            return Poll::Ready(Ok(match key.only_part() {
                Some(part) => single.charge(KeyBytes::Part(part), cost),
                None => single.charge(KeyBytes::of(sink_of(key).bytes()), cost),
            }));
        }
        limiter.check_quota()?;
        let mut check = Check::default();
        match limits.decide(&mut check, limiter.apply(key, self.cost)) {
            Outcome::Later => {
                let pending = Pending::new(&limiter.limits, &mut check, (), ());
                self.later = Some(Box::into_pin(pending));
                self.wait(cx)
            }
            outcome => Poll::Ready(decision(limits, outcome, &mut check)),
        }
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let later = self.later.as_mut().map(Pin::as_mut);
        let decision = ready!(later.expect("polled again after it was ready").poll(cx));
        self.later = None;
        Poll::Ready(decision)
    }
}

impl Future for Pending<(), ()> {
    type Output = DecisionResult;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        let this = &mut *self;
        let (outcome, ()) = ready!(Pending::poll(this, cx));
        Poll::Ready(decision(&this.limits, outcome, &mut this.check))
    }
}

impl<K: IntoKey> Future for CheckFuture<'_, K> {
    type Output = DecisionResult;

    #[inline(always)]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<DecisionResult> {
        match self.key.take() {
            Some(key) => self.start(key, cx),
            None => self.wait(cx),
        }
    }
}
