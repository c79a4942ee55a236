use std::sync::Arc;

use smallvec::{SmallVec, smallvec};
use tower_dist_ratelimit::{
    Quota,
    backend::{
        Charge, PolicyId,
        toolkit::{PartAnswer, TransactionPart},
    },
};

use super::{
    call::{ChargeKind, KeyArgs, ScriptCall},
    failure::Failure,
    route::Route,
    script::Script,
};

/// Charges of one request or correction that go out in one call. In a Cluster, their keys are in one slot.
#[derive(Clone)]
pub(super) struct SlotPart {
    pub(super) route: Route,
    pub(super) call: ScriptCall,
    pub(super) charges: SmallVec<[PlacedCharge; 2]>,
}

/// What a [`ScriptCall`] does not store about one of its charges.
#[derive(Clone)]
pub(super) struct PlacedCharge {
    /// The index of the charge in the request.
    pub(super) place: usize,
    pub(super) quota: Option<Quota>,
    /// The script for calls to this charge's policy alone.
    pub(super) single: Arc<Script>,
}

impl TransactionPart for SlotPart {
    type Failure = Failure;

    fn send(&self) -> Result<PartAnswer<Self>, Failure> {
        let quotas = self.charges.iter().map(|charge| charge.quota);
        let limits = self.call.limits(quotas);
        Ok(Box::pin(self.route.decide(self.call.clone(), limits)?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.charges.iter().map(|charge| charge.place)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let asks = self.call.asks.iter().zip(self.call.policies());
        let asks = asks.zip(&self.charges).zip(granted);
        let asks = asks.map(|(((ask, policy), placed), granted)| {
            let mut charge = Charge::new(PolicyId::new(0), b"", granted);
            charge.quota = placed.quota;
            // `KeyArgs::new` bounds a refund by the cost of the charge, which is the number of granted tokens here.
            KeyArgs::new(
                &charge,
                ask.tag,
                policy,
                ask.place,
                ChargeKind::Settle(i64::MIN),
            )
        });
        Self {
            call: ScriptCall {
                asks: asks.collect(),
                settles: true,
                ..self.call.clone()
            },
            ..self.clone()
        }
    }

    /// Returns one part per policy, if the call has several policies and failed because the node that answered does not
    /// have all of its keys.
    fn split(&self, failure: &Failure) -> Option<Vec<Self>> {
        let is_apart = matches!(failure, Failure::TryAgain) && self.charges.len() > 1;
        let asks = self.call.asks.iter().zip(&self.charges);
        let one = |(ask, charge): (&KeyArgs, &PlacedCharge)| Self {
            route: self.route.clone(),
            call: ScriptCall {
                script: Arc::clone(&charge.single),
                asks: smallvec![KeyArgs {
                    place: 0,
                    ..ask.clone()
                }],
                settles: self.call.settles,
            },
            charges: smallvec![charge.clone()],
        };
        is_apart.then(|| asks.map(one).collect())
    }

    fn is_retryable(failure: &Failure) -> bool {
        matches!(failure, Failure::Full | Failure::TryAgain)
    }
}
