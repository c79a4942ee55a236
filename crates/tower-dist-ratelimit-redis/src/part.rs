use smallvec::{SmallVec, smallvec};
use tower_dist_ratelimit::{
    Quota,
    backend::{
        BackendError, Charge, JointDecision, PolicyId,
        toolkit::{PartAnswer, TransactionPart},
    },
};

use super::{
    Redis,
    call::{Asked, Call, Verb},
    failure::Failure,
    reply::verdict,
};

/// Charges whose keys are in one slot.
#[derive(Clone)]
pub(super) struct Part {
    redis: Redis,
    call: Call,
    charges: SmallVec<[Placed; 2]>,
}

/// A charge without its key and its cost, which the call has.
#[derive(Clone, Copy)]
struct Placed {
    place: usize,
    policy: PolicyId,
    quota: Option<Quota>,
}

impl Part {
    /// The charges at these places.
    pub(super) fn new(
        redis: &Redis,
        charges: &[Charge<'_>],
        places: impl Iterator<Item = usize>,
        verb: Verb,
    ) -> Result<Self, BackendError> {
        let placed: SmallVec<[Placed; 2]> = places
            .map(|place| Placed {
                place,
                policy: charges[place].policy,
                quota: charges[place].quota,
            })
            .collect();
        let charges = placed.iter().map(|placed| charges[placed.place]);
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        Ok(Self {
            redis: redis.clone(),
            call: redis.call(&charges, verb)?,
            charges: placed,
        })
    }

    /// Sends the charges or corrections.
    pub(super) fn ask(
        &self,
    ) -> Result<impl Future<Output = Result<JointDecision, Failure>> + Send + use<>, Failure> {
        let limits = self
            .call
            .limits(self.charges.iter().map(|charge| charge.quota));
        let answers = self.redis.route.send(self.call.clone())?;
        Ok(async move { Ok(verdict(&answers.await?, &limits)) })
    }
}

impl TransactionPart for Part {
    type Failure = Failure;

    fn send(&self) -> Result<PartAnswer<Self>, Failure> {
        Ok(Box::pin(self.ask()?))
    }

    fn places(&self) -> impl Iterator<Item = usize> {
        self.charges.iter().map(|charge| charge.place)
    }

    fn refund(&self, granted: impl Iterator<Item = u64>) -> Self {
        let asks = self.call.asks.iter().zip(self.call.rules());
        let asks = asks.zip(&self.charges).zip(granted);
        let asks = asks.map(|(((ask, rule), placed), granted)| {
            let mut charge = Charge::new(placed.policy, b"", granted);
            charge.quota = placed.quota;
            // No more than was granted is returned.
            Asked::new(&charge, ask.tag, rule, ask.place, Verb::Settle(i64::MIN))
        });
        Self {
            call: Call {
                asks: asks.collect(),
                settles: true,
                ..self.call.clone()
            },
            ..self.clone()
        }
    }

    /// A part for each policy.
    fn split(&self, failure: &Failure) -> Option<Vec<Self>> {
        let is_apart = matches!(failure, Failure::TryAgain) && self.charges.len() > 1;
        let asks = self.call.asks.iter().zip(&self.charges);
        let one = |(ask, &charge): (&Asked, &Placed)| {
            let only = [Charge::new(charge.policy, b"", 0)];
            Some(Self {
                redis: self.redis.clone(),
                call: Call {
                    script: self.redis.script(&only).ok()?,
                    asks: smallvec![Asked {
                        place: 0,
                        ..ask.clone()
                    }],
                    settles: self.call.settles,
                },
                charges: smallvec![charge],
            })
        };
        is_apart.then(|| asks.map(one).collect())?
    }

    fn is_retryable(failure: &Failure) -> bool {
        matches!(failure, Failure::Full(_) | Failure::TryAgain)
    }
}
