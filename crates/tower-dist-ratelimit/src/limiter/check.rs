use std::{
    future::Future,
    mem,
    pin::Pin,
    slice,
    task::{Context, Poll, ready},
};

use super::{Limiter, decision};
use crate::{
    Decision, NoObserver,
    backend::{Answer, BackendError},
    key::{IntoKey, KeySink},
    ladder::Leave,
    limits::{Asked, Outcome, Question, Waiting},
};

type Decided = Poll<Result<Decision, BackendError>>;

/// The decision on one charge. By hand, because it is written where the caller gets it: an `async` function moves it in
/// pieces, which takes as long as hashing the key.
pub(super) struct Check<'a, K> {
    limiter: &'a Limiter,
    cost: u64,
    step: Step<K>,
}

enum Step<K> {
    Ask(K),
    /// In a box, so that not every future is as long as a key.
    Wait(Box<(Question, Waiting)>),
    Done,
}

// Nothing in it stays where it is: the key is moved out, and what waits is in boxes.
impl<K> Unpin for Check<'_, K> {}

impl<'a, K: IntoKey> Check<'a, K> {
    #[inline]
    pub(super) fn new(limiter: &'a Limiter, key: K, cost: u64) -> Self {
        Self {
            limiter,
            cost,
            step: Step::Ask(key),
        }
    }

    /// Asks the store; without making what only those need who do not get an answer at once. If there is none in `out`,
    /// what there is instead.
    #[inline]
    fn ask(&mut self, key: K, out: &mut Decision, cx: &mut Context<'_>) -> Option<Decided> {
        let limiter = self.limiter;
        if let Err(error) = limiter.check_quota() {
            return Some(Poll::Ready(Err(error)));
        }
        let mut sink = KeySink::new();
        let asked = limiter.asked(key, self.cost, &mut sink);
        let ladder = &limiter.limits.ladder;
        let Some(leave) = ladder.leave_if_closed() else {
            return Some(self.go_on(sink, asked, None, cx));
        };
        let charge = asked.charge(sink.bytes());
        let (charges, out) = (slice::from_ref(&charge), slice::from_mut(out));
        match limiter.limits.backend.acquire(charges, out) {
            Answer::Done(_) => {
                ladder.answered_at_once(leave, &NoObserver);
                None
            }
            answer => Some(self.go_on(sink, asked, Some((answer, leave)), cx)),
        }
    }

    /// Asks a store that is watched, or makes something of another answer than a decision.
    #[cold]
    fn go_on(
        &mut self,
        sink: KeySink,
        asked: Asked,
        answer: Option<(Answer, Leave)>,
        cx: &mut Context<'_>,
    ) -> Decided {
        let limits = &self.limiter.limits;
        let mut question = Question::one(sink, asked, Decision::default());
        let outcome = match answer {
            None => limits.ask(&mut question, &NoObserver, None),
            Some((answer, leave)) => {
                limits.outcome(&mut question, answer, leave, &NoObserver, None)
            }
        };
        match outcome {
            Outcome::Later(waiting) => {
                self.step = Step::Wait(Box::new((question, waiting)));
                self.wait(cx)
            }
            Outcome::Pass | Outcome::Refuse(_) => Poll::Ready(decision(question)),
        }
    }

    #[cold]
    fn wait(&mut self, cx: &mut Context<'_>) -> Decided {
        let Step::Wait(later) = &mut self.step else {
            panic!("polled again after it was ready");
        };
        let (question, waiting) = &mut **later;
        ready!(waiting.poll(&self.limiter.limits, question, &NoObserver, cx));
        match mem::replace(&mut self.step, Step::Done) {
            Step::Wait(later) => Poll::Ready(decision(later.0)),
            Step::Ask(_) | Step::Done => unreachable!("it waited a line above"),
        }
    }
}

impl<K: IntoKey> Future for Check<'_, K> {
    type Output = Result<Decision, BackendError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Decided {
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
