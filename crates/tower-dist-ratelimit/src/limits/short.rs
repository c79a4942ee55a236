use std::{ops::Range, slice};

use super::{Applies, Asked, Limits, Outcome, Question, Rule};
use crate::{Decided, Decision, Observer, backend::Answer, key::KeySink, ladder::Leave};

/// How far the shortest way has led.
pub(crate) enum Short<T> {
    Pass(T),
    /// Decided without the store, since the policy does not apply or the key is missing.
    Unasked(Outcome),
    /// The store says something else; the question is where the caller asked for it.
    Else(Answer, Leave),
    /// It has to be the long way, from the beginning: nothing of the request was looked at.
    Unfit,
}

impl<T> Short<T> {
    /// Where the policy cannot be asked about the request.
    pub(crate) fn unasked(applies: &Applies) -> Self {
        match applies {
            Applies::Rejects(reason) => Self::Unasked(Outcome::Reject(*reason)),
            Applies::No => Self::Unasked(Outcome::Pass),
            Applies::To { .. } => Self::Unfit,
        }
    }
}

impl Limits {
    /// The shortest way, for the only policy if its quota is fixed. It makes nothing that only those requests need that
    /// do not pass at once, which halves the time that a layer takes. `look` finds the key and the cost; `passed` is made of
    /// the decision. There is a `question` only if the store has said something else.
    #[inline]
    pub(crate) fn decide_shortly<O: Observer, T>(
        &self,
        rule: &Rule,
        observer: &O,
        question: &mut Option<Question>,
        look: impl FnOnce(&mut KeySink) -> Result<(Range<usize>, u64), Short<T>>,
        passed: impl FnOnce(Decided<'_>) -> T,
    ) -> Short<T> {
        let Some(leave) = self.ladder.leave_if_closed() else {
            return Short::Unfit;
        };
        let mut sink = KeySink::new();
        let (key, cost) = match look(&mut sink) {
            Ok(found) => found,
            Err(short) => return short,
        };
        let asked = Asked {
            rule: 0,
            id: rule.id,
            key,
            cost,
            quota: None,
        };
        let mut decision = Decision::default();
        let answer = match &self.alone {
            Some(alone) => {
                decision = alone.charge(asked.key(sink.bytes()), cost);
                Answer::Done(decision.allowed)
            }
            None => {
                let charge = asked.charge(sink.bytes());
                let (charges, out) = (slice::from_ref(&charge), slice::from_mut(&mut decision));
                self.backend.acquire(charges, out)
            }
        };
        match answer {
            Answer::Done(true) if decision.delay.is_zero() => {
                self.ladder.answered_at_once(leave, observer);
                let decided = Decided::one(self, &asked, &decision);
                observer.allowed(&decided);
                Short::Pass(passed(decided))
            }
            answer => {
                *question = Some(Question::one(sink, asked, decision));
                Short::Else(answer, leave)
            }
        }
    }
}
