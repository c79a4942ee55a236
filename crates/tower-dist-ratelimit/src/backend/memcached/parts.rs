//! Policies whose keys differ: their states are different items, which no server changes together.

use std::{sync::Arc, time::Duration};

use smallvec::SmallVec;

use super::{Kept, Later, Memcached, Verb, job::Asked};
use crate::{
    Decisions, Source,
    backend::{BackendError, Verdict, tag::Tag},
};

/// What is asked of one item.
pub(super) struct Part {
    pub(super) kept: Kept,
    pub(super) tag: Tag,
    pub(super) verb: Verb,
    /// The places among all charges, those in the set, and what is asked.
    pub(super) asked: SmallVec<[(usize, usize, Asked); 1]>,
}

impl Part {
    pub(super) fn new(kept: Kept, tag: Tag, verb: Verb, place: usize, asked: Asked) -> Self {
        let slot = match kept {
            Kept::Counted(_) => 0,
            Kept::InSet(_, slot) => slot,
        };
        Self {
            kept,
            tag,
            verb,
            asked: [(place, slot, asked)].into_iter().collect(),
        }
    }

    /// Adds a charge, if it is to the same item.
    pub(super) fn join(&mut self, kept: &Kept, tag: &Tag, place: usize, asked: Asked) -> bool {
        match (&self.kept, kept) {
            (Kept::InSet(set, _), Kept::InSet(other, slot))
                if Arc::ptr_eq(set, other) && self.tag == *tag =>
            {
                self.asked.push((place, *slot, asked));
                true
            }
            _ => false,
        }
    }

    /// What puts back what this took; none if that is nothing.
    fn refund(&self, verdict: &Verdict) -> Option<Self> {
        let granted = verdict.decisions.iter().map(|decision| decision.granted);
        let took = verdict.allowed && granted.clone().any(|granted| granted > 0);
        let asked = self.asked.iter().zip(granted);
        took.then(|| Self {
            kept: self.kept.clone(),
            tag: self.tag,
            // Of each no more than it took.
            verb: Verb::Settle(i64::MIN),
            asked: asked
                .map(|(&(place, slot, asked), granted)| {
                    let cost = granted;
                    (place, slot, Asked { cost, ..asked })
                })
                .collect(),
        })
    }
}

/// Asks all parts at the same time. When one refuses or fails, puts back what the others took.
pub(super) async fn ask(
    memcached: Memcached,
    parts: Vec<Part>,
    charges: usize,
    verb: Verb,
) -> Result<Verdict, BackendError> {
    let sent: Vec<Result<Later, BackendError>> =
        parts.iter().map(|part| memcached.send(part)).collect();
    let answers = all(sent).await;
    if verb != Verb::Acquire {
        for answer in answers {
            answer?;
        }
        return Ok(super::job::done());
    }
    let allowed = answers
        .iter()
        .all(|answer| answer.as_ref().is_ok_and(|verdict| verdict.allowed));
    if !allowed {
        let taken = parts.iter().zip(&answers);
        let refunds = taken.filter_map(|(part, answer)| part.refund(answer.as_ref().ok()?));
        // Whose refund fails is charged, which is the safe side.
        all(refunds.map(|part| memcached.send(&part)).collect()).await;
    }
    let mut decisions = Decisions::refused(charges);
    for (part, answer) in parts.iter().zip(answers) {
        for (&(place, ..), said) in part.asked.iter().zip(answer?.decisions.iter()) {
            let mut one = *said;
            if !allowed {
                one.source = Source::Parts;
                one.remaining += one.granted;
                one.granted = 0;
                one.delay = Duration::ZERO;
            }
            decisions[place] = one;
        }
    }
    Ok(Verdict { allowed, decisions })
}

/// What was sent is on its way already, so waiting for one after the other takes no longer.
async fn all(sent: Vec<Result<Later, BackendError>>) -> Vec<Result<Verdict, BackendError>> {
    let mut answers = Vec::with_capacity(sent.len());
    for later in sent {
        answers.push(match later {
            Ok(later) => later.await,
            Err(error) => Err(error),
        });
    }
    answers
}
