use std::{ptr, sync::Arc};

use smallvec::SmallVec;
use tower_dist_ratelimit::backend::{
    BackendError, Charge,
    toolkit::{PendingVerdict, TransactionPart as _},
};

use super::{
    Redis,
    call::{ChargeKind, KeyArgs, ScriptCall},
    part::{PlacedCharge, SlotPart},
    scripts::Scripts,
};

/// Makes calls from the charges of a request.
impl Redis {
    /// Splits charges into one part per slot of a Cluster. Charges to a single server are one part.
    fn parts(
        &self,
        charges: &[Charge<'_>],
        action: ChargeKind,
    ) -> Result<SmallVec<[SlotPart; 1]>, BackendError> {
        let slot = |charge: &Charge<'_>| match self.route.is_cluster() {
            true => {
                let (scripts, place) = self.registry.find(charge)?;
                let keys = &scripts.single[place].policies[0].keys;
                Ok(keys.slot(&self.tags.of(charge.key)))
            }
            false => Ok(0),
        };
        let slots = charges.iter().map(slot);
        let slots = slots.collect::<Result<SmallVec<[u16; 4]>, BackendError>>()?;
        let mut parts = SmallVec::new();
        for (first, slot) in slots.iter().enumerate() {
            if !slots[..first].contains(slot) {
                let places = (first..slots.len()).filter(|&place| slots[place] == *slot);
                let charges_here: SmallVec<[Charge<'_>; 4]> =
                    places.clone().map(|place| charges[place]).collect();
                let placed = places.map(|place| {
                    let (scripts, number) = self.registry.find(&charges[place])?;
                    Ok(PlacedCharge {
                        place,
                        quota: charges[place].quota,
                        single: Arc::clone(&scripts.single[number]),
                    })
                });
                parts.push(SlotPart {
                    route: self.route.clone(),
                    call: self.call(&charges_here, action)?,
                    charges: placed.collect::<Result<_, BackendError>>()?,
                });
            }
        }
        Ok(parts)
    }

    /// Builds the call for these charges.
    ///
    /// # Errors
    ///
    /// No charges, charges to unknown policies or to policies of several sets, several charges to one policy, or a
    /// quota for a policy without dynamic quotas.
    pub(super) fn call(
        &self,
        charges: &[Charge<'_>],
        action: ChargeKind,
    ) -> Result<ScriptCall, BackendError> {
        let mut found: SmallVec<[(&Scripts, usize); 4]> = SmallVec::new();
        for charge in charges {
            let (scripts, place) = self.registry.find(charge)?;
            let clashes =
                |found: &(&Scripts, usize)| !ptr::eq(found.0, scripts) || found.1 == place;
            if found.iter().any(clashes) {
                return Err(BackendError::new(
                    "charges to policies of several sets, or several charges to one policy",
                ));
            }
            found.push((scripts, place));
        }
        let script = match found[..] {
            [] => return Err(BackendError::new("no charges")),
            [(scripts, place)] => &scripts.single[place],
            [(scripts, _), ..] => &scripts.whole,
        };
        let asks = charges.iter().zip(&found).map(|(charge, &(_, place))| {
            // The script of a single policy has one policy, at index 0.
            let place = place.min(script.policies.len() - 1);
            let tag = self.tags.of(charge.key);
            KeyArgs::new(charge, tag, &script.policies[place], place, action)
        });
        Ok(ScriptCall {
            script: Arc::clone(script),
            asks: asks.collect(),
            settles: matches!(action, ChargeKind::Settle(_)),
        })
    }

    /// Sends the charges. The returned future resolves to the decisions.
    pub(super) fn decide(&self, charges: &[Charge<'_>]) -> Result<PendingVerdict, BackendError> {
        if !self.route.is_cluster() || charges.len() == 1 {
            let call = self.call(charges, ChargeKind::Acquire)?;
            let limits = call.limits(charges.iter().map(|charge| charge.quota));
            return Ok(Box::pin(self.route.decide(call, limits)?));
        }
        let parts = self.parts(charges, ChargeKind::Acquire)?;
        let [part] = &parts[..] else {
            return self.transactions.acquire(parts.into_vec());
        };
        let (answer, part) = (part.send()?, part.clone());
        let transactions = self.transactions.clone();
        Ok(Box::pin(async move {
            match answer.await {
                Ok(verdict) => Ok(verdict),
                Err(failure) => match part.split(&failure) {
                    Some(parts) => transactions.acquire(parts)?.await,
                    None => Err(failure.into()),
                },
            }
        }))
    }

    /// Sends corrections. The returned future fails if one of them is [lost](Redis::lost_corrections).
    pub(super) fn correct(
        &self,
        charges: &[Charge<'_>],
        delta: i64,
    ) -> Result<PendingVerdict, BackendError> {
        let parts = self.parts(charges, ChargeKind::Settle(delta))?;
        self.transactions.settle(parts.into_vec())
    }
}
