use smallvec::SmallVec;

use crate::{
    Algorithm, BuildError, Decision, Policy, Quota, Source,
    backend::{Answer, Backend, BackendError, Charge, Memory, PolicyId},
    limits,
    policy::Cost,
};

/// Decides in this process, by a share of every quota.
pub(crate) struct Fallback {
    memory: Memory,
    /// In the order of the policies.
    shares: Vec<Share>,
}

/// One policy's.
struct Share {
    id: PolicyId,
    algorithm: Algorithm,
    fleet: u64,
    /// What one request costs, if that is fixed.
    cost: u64,
}

impl Fallback {
    /// For one of `fleet` instances that share these policies.
    ///
    /// # Errors
    ///
    /// A share that this process cannot count. Without a remote backend, the whole quota of one instance is counted in this
    /// process anyway; then the error is about the policy, not about the fallback.
    pub(super) fn new(
        policies: &[Policy],
        fleet: u32,
        is_remote: bool,
    ) -> Result<Self, BuildError> {
        let memory = Memory::default();
        let most = memory.capabilities().max_policies;
        if policies.len() > most {
            let bound = format_args!("at most {most} with OnError::LocalFallback");
            return Err(BuildError::new("number of policies", policies.len(), bound));
        }
        let mut shares: Vec<Share> = policies
            .iter()
            .map(|policy| Share {
                id: PolicyId::new(0),
                algorithm: policy.algorithm(),
                fleet: u64::from(fleet).max(1),
                cost: match policy.cost {
                    Cost::Fixed(cost) => cost,
                    Cost::Of(_) => 1,
                },
            })
            .collect();
        let own = policies.iter().zip(&shares).map(|(policy, share)| {
            let own = Policy::new(policy.name(), share.of(policy.quota()));
            let own = own.counted(share.algorithm);
            if policy.has_dynamic_quotas() {
                own.dynamic_quotas()
            } else {
                own
            }
        });
        let ids =
            limits::register(&memory, &own.collect::<Vec<_>>()).map_err(|error| match fleet {
                1 if !is_remote => error,
                _ => no_share(fleet, &error),
            })?;
        for (share, id) in shares.iter_mut().zip(ids) {
            share.id = id;
        }
        Ok(Self { memory, shares })
    }

    /// Decides instead of the store, on these charges of policies by their numbers.
    pub(crate) fn acquire<'a>(
        &self,
        charges: impl Iterator<Item = (usize, Charge<'a>)>,
        out: &mut [Decision],
    ) -> Result<bool, BackendError> {
        let charges = charges.map(|(number, charge)| self.own(number, charge));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        let allowed = now(self.memory.acquire(&charges, out))?;
        for decision in out {
            decision.source = Source::LocalFallback;
        }
        Ok(allowed)
    }

    /// Corrects a charge that was made here.
    pub(crate) fn settle(
        &self,
        number: usize,
        charge: Charge<'_>,
        delta: i64,
    ) -> Result<(), BackendError> {
        now(self.memory.settle(&[self.own(number, charge)], delta)).map(|_| ())
    }

    /// Forgets what a key has used here.
    pub(crate) fn reset(&self, number: usize, key: &[u8]) {
        // It is done when it is asked for.
        drop(self.memory.reset(self.shares[number].id, key));
    }

    /// The same charge to this process's share of the policy; without more than is needed.
    fn own<'a>(&self, number: usize, charge: Charge<'a>) -> Charge<'a> {
        let share = &self.shares[number];
        Charge {
            quota: charge.quota.map(|quota| share.of(quota)),
            ..Charge::new(share.id, charge.key, charge.cost)
        }
    }
}

impl Share {
    fn of(&self, quota: Quota) -> Quota {
        // Whoever is allowed nothing gets no share of it.
        let share = |tokens: u64, least: u64| (tokens / self.fleet).max(least).min(tokens);
        let burst = share(quota.burst_size(), self.cost.max(1));
        let limit = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => share(quota.limit(), 1),
            // There the limit is all that passes at once.
            _ => share(quota.limit(), self.cost.max(1)),
        };
        Quota::new(limit, quota.window()).burst(burst)
    }
}

/// Nobody has set what is wrong with a share: what can be changed is the fleet, and who decides.
fn no_share(fleet: u32, error: &BuildError) -> BuildError {
    let (field, value, bound) = (error.field(), error.value(), error.bound());
    let bound = format_args!(
        "so many that this process can count its share of the limit, whose {field} is {value} and must be {bound}; else \
         choose OnError::Allow or OnError::Deny"
    );
    let of_share = BuildError::new("fleet", fleet, bound);
    match error.policy() {
        Some(policy) => of_share.in_policy(policy),
        None => of_share,
    }
}

/// [`Memory`] knows no other answers.
fn now(answer: Answer) -> Result<bool, BackendError> {
    match answer {
        Answer::Done(allowed) => Ok(allowed),
        Answer::Failed(error) => Err(error),
        Answer::Later(_) => Err(BackendError::new("an answer that comes later")),
    }
}
