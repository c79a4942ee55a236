//! Policies whose keys are in different places of a Cluster: in different slots, or in one that moves.

use futures_util::future::join_all;
use smallvec::{SmallVec, smallvec};

use super::{
    Redis,
    call::{Asked, Call},
    failure::Failure,
    reply::Words,
    route::{Answers, Route},
};
use crate::{
    Decision, Decisions, Source,
    backend::{BackendError, Charge, PolicyId, Verdict},
};

/// The charges of one slot.
pub(super) struct Part {
    pub(super) call: Call,
    /// Their places among all charges.
    pub(super) places: SmallVec<[usize; 4]>,
}

/// Parts that were sent, in parallel.
pub(super) struct Sent(Vec<(Part, Result<Answers, Failure>)>);

impl Sent {
    pub(super) fn new(route: &Route, parts: Vec<Part>) -> Self {
        let send = |part: Part| {
            let answers = route.send(part.call.clone());
            (part, answers)
        };
        Self(parts.into_iter().map(send).collect())
    }

    /// Waits for all. When one part refuses or fails, puts back what the others took.
    pub(super) async fn verdict(self, route: &Route, limits: &[u64]) -> Result<Verdict, Failure> {
        let answers = self.0.into_iter().map(|(part, answers)| async {
            let answers = match answers {
                Ok(answers) => answers.await,
                Err(failure) => Err(failure),
            };
            (part, answers)
        });
        let parts = join_all(answers).await;
        let refuses = |answers: &Result<Words, Failure>| match answers {
            Ok(words) => words.iter().any(|said| said.granted < 0),
            Err(_) => true,
        };
        let apart = parts.len() > 1;
        let allowed = !parts.iter().any(|(_, answers)| refuses(answers));
        if !allowed {
            let taken = parts
                .iter()
                .filter_map(|(part, answers)| refund(part, answers.as_ref().ok()?));
            // Whose refund fails is charged, which is the safe side.
            join_all(taken.filter_map(|call| route.send(call).ok())).await;
        }
        let mut decisions = Decisions::refused(limits.len());
        for (part, answers) in parts {
            let answers = answers?;
            for (&place, said) in part.places.iter().zip(&answers) {
                let mut one = said.decision(limits[place]);
                if !allowed && apart {
                    put_back(&mut one);
                }
                decisions[place] = one;
            }
        }
        Ok(Verdict { allowed, decisions })
    }
}

/// What a part asks, to be asked of one policy after the other if its keys are not all in one place.
pub(super) struct Singly {
    redis: Redis,
    asks: SmallVec<[(usize, PolicyId, Asked); 2]>,
    settles: bool,
}

impl Singly {
    /// Of a part of these charges.
    pub(super) fn new(redis: &Redis, charges: &[Charge<'_>], part: &Part) -> Self {
        let asks = part.places.iter().zip(&part.call.asks);
        let asks = asks.map(|(&place, ask)| (place, charges[place].policy, ask.clone()));
        Self {
            redis: redis.clone(),
            asks: asks.collect(),
            settles: part.call.settles,
        }
    }

    /// A part for each policy.
    pub(super) fn parts(self) -> Result<Vec<Part>, BackendError> {
        let part = |(place, policy, ask)| {
            let call = Call {
                // Of the charge only the policy counts here.
                script: self.redis.script(&[Charge::new(policy, b"", 0)])?,
                asks: smallvec![Asked { place: 0, ..ask }],
                settles: self.settles,
            };
            let places = smallvec![place];
            Ok(Part { call, places })
        };
        self.asks.into_iter().map(part).collect()
    }
}

/// The call that puts back what a part took; none if that is nothing.
fn refund(part: &Part, words: &Words) -> Option<Call> {
    let granted: SmallVec<[i64; 4]> = words.iter().map(|said| said.granted).collect();
    let took =
        granted.iter().all(|&granted| granted >= 0) && granted.iter().any(|&granted| granted > 0);
    let asks = part.call.asks.iter().zip(granted);
    took.then(|| Call {
        asks: asks.map(|(ask, granted)| ask.refund(granted)).collect(),
        settles: true,
        ..part.call.clone()
    })
}

/// What a decision is once its tokens are back.
fn put_back(decision: &mut Decision) {
    decision.source = Source::Parts;
    decision.remaining += decision.granted;
    decision.granted = 0;
    decision.delay = std::time::Duration::ZERO;
}
