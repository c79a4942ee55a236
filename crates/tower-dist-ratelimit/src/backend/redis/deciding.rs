use std::{ptr, sync::Arc};

use smallvec::{SmallVec, smallvec};

use super::{
    Redis,
    apart::{Part, Sent, Singly},
    call::{Asked, Call, Verb},
    failure::Failure,
    route::Deciding,
    rule::Rule,
    script::Script,
};
use crate::{
    Decisions,
    backend::{BackendError, BoxFuture, Charge, Verdict},
};

/// A verdict that comes later.
type Decided = BoxFuture<'static, Result<Verdict, BackendError>>;

/// What is sent about charges, and what the answers mean.
impl Redis {
    /// What is asked by these charges, of as many parts as there are servers to ask: nearly always one.
    fn parts(
        &self,
        charges: &[Charge<'_>],
        verb: Verb,
    ) -> Result<SmallVec<[Part; 1]>, BackendError> {
        let whole = self.call(charges, verb)?;
        let slots: SmallVec<[u16; 4]> = match self.route.is_cluster() {
            true => whole.slots().collect(),
            false => SmallVec::new(),
        };
        if slots.iter().all(|&slot| slot == slots[0]) {
            let places = (0..charges.len()).collect();
            let call = whole;
            return Ok(smallvec![Part { call, places }]);
        }
        let mut parts = SmallVec::new();
        for (first, slot) in slots.iter().enumerate() {
            if slots[..first].contains(slot) {
                continue;
            }
            let places: SmallVec<[usize; 4]> = (first..slots.len())
                .filter(|&place| slots[place] == *slot)
                .collect();
            let charges: SmallVec<[Charge<'_>; 4]> =
                places.iter().map(|&place| charges[place]).collect();
            let call = self.call(&charges, verb)?;
            parts.push(Part { call, places });
        }
        Ok(parts)
    }

    fn call(&self, charges: &[Charge<'_>], verb: Verb) -> Result<Call, BackendError> {
        let script = self.script(charges)?;
        let is_single = script.rules.len() == 1;
        let mut asks = SmallVec::new();
        for charge in charges {
            let (_, place) = self.registry.find(charge)?;
            let place = if is_single { 0 } else { place };
            let tag = self.tags.of(charge.key);
            asks.push(Asked::new(charge, tag, &script.rules[place], place, verb));
        }
        Ok(Call {
            script,
            asks,
            settles: matches!(verb, Verb::Settle(_)),
        })
    }

    /// The script that decides on these charges.
    ///
    /// # Errors
    ///
    /// Charges to policies of several sets, or several to one policy.
    pub(super) fn script(&self, charges: &[Charge<'_>]) -> Result<Arc<Script>, BackendError> {
        let Some((first, others)) = charges.split_first() else {
            return Err(BackendError::new("no charges"));
        };
        let (scripts, place) = self.registry.find(first)?;
        if others.is_empty() {
            return Ok(Arc::clone(scripts.single(place)));
        }
        let mut seen = 1_u32 << place;
        for other in others {
            let (of, place) = self.registry.find(other)?;
            if !ptr::eq(of, scripts) || seen & 1 << place != 0 {
                return Err(BackendError::new(
                    "charges to policies of several sets, or several charges to one policy",
                ));
            }
            seen |= 1 << place;
        }
        Ok(Arc::clone(scripts.whole()))
    }

    pub(super) fn rule(&self, charge: &Charge<'_>) -> Result<&Arc<Rule>, BackendError> {
        let (scripts, place) = self.registry.find(charge)?;
        Ok(&scripts.single(place).rules[0])
    }

    /// Sends the charges; the future has the verdict.
    pub(super) fn decide(&self, charges: &[Charge<'_>]) -> Result<Decided, BackendError> {
        if !self.route.is_cluster() || charges.len() == 1 {
            return self.decide_in_one(charges, self.call(charges, Verb::Acquire)?);
        }
        let parts = self.parts(charges, Verb::Acquire)?;
        let limits = charges
            .iter()
            .map(|charge| Ok(self.rule(charge)?.limit(charge.quota)))
            .collect::<Result<SmallVec<[u64; 4]>, BackendError>>()?;
        let singly = parts.iter().map(|part| Singly::new(self, charges, part));
        let singly: SmallVec<[Singly; 1]> = singly.collect();
        let (route, sent) = (self.route.clone(), Sent::new(&self.route, parts.into_vec()));
        Ok(Box::pin(async move {
            let decided = sent.verdict(&route, &limits).await;
            let Err(Failure::TryAgain) = decided else {
                return Ok(decided?);
            };
            let mut parts = Vec::with_capacity(limits.len());
            for singly in singly {
                parts.extend(singly.parts()?);
            }
            Ok(Sent::new(&route, parts).verdict(&route, &limits).await?)
        }))
    }

    fn decide_in_one(&self, charges: &[Charge<'_>], call: Call) -> Result<Decided, BackendError> {
        let limits = charges.iter().zip(call.rules());
        let limits = limits.map(|(charge, rule)| rule.limit(charge.quota));
        let limits: SmallVec<[u64; 2]> = limits.collect();
        let answers = self.route.send(call)?;
        Ok(Box::pin(Deciding { answers, limits }))
    }

    /// Sends corrections; the future says whether all are made.
    pub(super) fn correct(
        &self,
        charges: &[Charge<'_>],
        delta: i64,
    ) -> Result<Decided, BackendError> {
        let parts = self.parts(charges, Verb::Settle(delta))?;
        let send = |part: Part| {
            let singly = Singly::new(self, charges, &part);
            Ok((self.route.send(part.call)?, singly))
        };
        let sent = parts
            .into_iter()
            .map(send)
            .collect::<Result<SmallVec<[_; 1]>, BackendError>>()?;
        let route = self.route.clone();
        Ok(Box::pin(async move {
            for (answers, singly) in sent {
                match answers.await {
                    Err(Failure::TryAgain) => {
                        for part in singly.parts()? {
                            route.send(part.call)?.await?;
                        }
                    }
                    answers => drop(answers?),
                }
            }
            Ok(Verdict {
                allowed: true,
                decisions: Decisions::refused(0),
            })
        }))
    }
}
