use std::{slice, time::Duration};

use smallvec::SmallVec;

use crate::{
    Algorithm, BuildError, Decision, Policy, Quota, Source,
    backend::{Answer, Backend, BackendError, Charge, Memory, PolicyId},
    quota::HORIZON,
    register,
};

/// The limits of the local failure mode, with this process's share of each quota.
pub(crate) struct Fallback {
    share: Memory,
    /// Tokens that were admitted here without a decision of the backend. Has the same policies as `share`.
    unreported: Memory,
    /// In the order of the policies.
    shares: Vec<Share>,
}

/// This process's share of one policy.
struct Share {
    id: PolicyId,
    algorithm: Algorithm,
    /// This process's share of the policy's own quota.
    quota: Quota,
    /// Whether keys can have other quotas.
    is_dynamic: bool,
    instances: u64,
    /// The policy's fixed cost of a request.
    cost: u64,
}

impl Fallback {
    /// Builds the fallback of one of `instances` instances that share these policies.
    ///
    /// # Errors
    ///
    /// Fails if there are more policies than a [`Memory`] decides together, or if a [`Memory`] does not accept the
    /// shares.
    pub(super) fn new(policies: &[Policy], instances: u32) -> Result<Self, BuildError> {
        let (share, unreported) = (Memory::default(), Memory::default());
        let most = share.max_policies();
        if policies.len() > most {
            let bound = format!("at most {most} with FailureMode::Local");
            return Err(BuildError::new("number of policies", policies.len(), bound));
        }
        let mut shares: Vec<Share> = policies
            .iter()
            .map(|policy| Share::new(policy, instances))
            .collect();
        let own = policies.iter().zip(&shares).map(|(policy, share)| {
            let own = Policy::new(policy.name(), share.quota).counted(share.algorithm);
            match share.is_dynamic {
                true => own.dynamic_quotas(),
                false => own,
            }
        });
        let own: Vec<Policy> = own.collect();
        let register = |memory: &Memory| {
            register::register(memory, &own).map_err(|error| no_share(instances, &error))
        };
        register(&unreported)?;
        // Both memories are new, so they assign the same ids.
        for (share, id) in shares.iter_mut().zip(register(&share)?) {
            share.id = id;
        }
        Ok(Self {
            share,
            unreported,
            shares,
        })
    }

    /// Returns an upper bound of the time for which an admitted token counts, except for tokens in queues and debts.
    pub(super) fn retention(&self) -> Duration {
        let retention = self.shares.iter().map(Share::retention);
        retention.max().unwrap_or_default()
    }

    /// Decides with this process's shares. Each charge comes with the index of its policy.
    pub(crate) fn acquire<'a>(
        &self,
        charges: impl Iterator<Item = (usize, Charge<'a>)>,
        out: &mut [Decision],
    ) -> Result<bool, BackendError> {
        let charges = charges.map(|(number, charge)| self.own(number, charge));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        let allowed = self.share.acquire(&charges, out).immediate()?;
        for decision in out {
            decision.source = Source::Local;
        }
        Ok(allowed)
    }

    /// Records a charge that was admitted without a decision of the backend.
    pub(crate) fn keep(&self, number: usize, charge: Charge<'_>) {
        let cost = i64::try_from(charge.cost).unwrap_or(i64::MAX);
        let _ = self.unreported.settle(&[self.own(number, charge)], cost);
    }

    /// Refunds a charge to the share, because the backend rejected the request or failed.
    pub(crate) fn release(&self, number: usize, charge: Charge<'_>) {
        let cost = i64::try_from(charge.cost).unwrap_or(i64::MAX);
        let _ = self.share.settle(&[self.own(number, charge)], -cost);
    }

    /// Returns and clears the tokens that a key used here without the backend, if they still count. Returns at most the
    /// burst or limit of the share. For a leaky queue, clears nothing and returns 0.
    pub(crate) fn take_unreported(&self, number: usize, charge: Charge<'_>) -> u64 {
        let share = &self.shares[number];
        let look = self.own(number, Charge { cost: 0, ..charge });
        let mut decision = Decision::default();
        let (looks, decisions) = (slice::from_ref(&look), slice::from_mut(&mut decision));
        let looked = self.unreported.acquire(looks, decisions).immediate();
        if looked.is_err() {
            return 0;
        }
        let most = match share.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => {
                look.quota.unwrap_or(share.quota).burst_size()
            }
            // Requests of a leaky queue are not reported to the backend, because a report would delay later requests.
            Algorithm::LeakyQueue { .. } => 0,
            _ => decision.limit,
        };
        let unreported = most.saturating_sub(decision.remaining);
        if unreported > 0 {
            drop(self.unreported.reset(share.id, charge.key));
        }
        unreported
    }

    /// Changes charges by `delta` tokens, in the share and in the unreported tokens.
    pub(crate) fn settle(&self, charges: &[(usize, Charge<'_>)], delta: i64) -> Answer {
        for &(number, charge) in charges {
            let own = [self.own(number, charge)];
            let settled = self.unreported.settle(&own, delta).immediate();
            let settled = settled.and_then(|_| self.share.settle(&own, delta).immediate());
            if let Err(error) = settled {
                return Answer::Failed(error);
            }
        }
        Answer::Done(true)
    }

    /// Resets the usage of a key in this process.
    pub(crate) fn reset(&self, number: usize, key: &[u8]) {
        for memory in [&self.share, &self.unreported] {
            // A `Memory` resets in the call itself, so the returned future can be dropped.
            drop(memory.reset(self.shares[number].id, key));
        }
    }

    /// Returns the charge with the policy id of the share. If the charge has its own quota, the new charge has this
    /// process's share of that quota. The maximum grant of the new charge is its cost.
    fn own<'a>(&self, number: usize, charge: Charge<'a>) -> Charge<'a> {
        let share = &self.shares[number];
        let quota = charge.quota.map(|quota| share.of(quota));
        Charge::new(share.id, charge.key, charge.cost).with(quota)
    }
}

impl Share {
    fn new(policy: &Policy, instances: u32) -> Self {
        let mut share = Self {
            id: PolicyId::new(0),
            algorithm: match policy.algorithm() {
                // In this process, windows at fixed times would usually not start together with the backend's windows.
                // So two of them could admit requests in the rest of the backend's window in which an outage begins. A
                // window from the first request lasts at least as long as that rest.
                Algorithm::FixedWindow { .. } => Algorithm::FixedWindowFromFirstRequest,
                algorithm => algorithm,
            },
            quota: policy.quota(),
            is_dynamic: policy.has_dynamic_quotas(),
            instances: u64::from(instances).max(1),
            cost: policy.cost,
        };
        share.quota = share.of(share.quota);
        share
    }

    /// Returns an upper bound of the time for which an admitted token counts, except for tokens in queues and debts.
    fn retention(&self) -> Duration {
        if self.is_dynamic {
            return HORIZON;
        }
        let refill = self.quota.time(self.quota.burst_size());
        refill.max(self.quota.window().saturating_mul(2))
    }

    /// Returns this process's share of a quota.
    fn of(&self, quota: Quota) -> Quota {
        // A quota of zero stays zero.
        let share = |tokens: u64, least: u64| (tokens / self.instances).max(least).min(tokens);
        let burst = share(quota.burst_size(), self.cost.max(1));
        let limit = match self.algorithm {
            Algorithm::TokenBucket | Algorithm::LeakyBucket => share(quota.limit(), 1),
            // An algorithm without a burst normally rejects a request that costs more than the limit. So the share's
            // limit is at least the policy's fixed cost, unless the whole quota is lower.
            _ => share(quota.limit(), self.cost.max(1)),
        };
        Quota::new(limit, quota.window()).burst(burst)
    }
}

/// Converts an error about a share into one about `instances`, because callers set the instances and not the share.
fn no_share(instances: u32, error: &BuildError) -> BuildError {
    let (field, value, bound) = (error.field(), error.value(), error.bound());
    let bound = format!(
        "so large that this process can count its share: the {field} of the share is {value}, but must be {bound}; otherwise \
         use FailureMode::Open or FailureMode::Closed"
    );
    let of_share = BuildError::new("instances", instances, bound);
    match error.policy() {
        Some(policy) => of_share.in_policy(policy),
        None => of_share,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retention(quota: Quota) -> Duration {
        let fallback = Fallback::new(&[Policy::new("slow", quota)], 1);
        fallback.expect("a share that Memory can count").retention()
    }

    #[test]
    fn a_token_counts_until_a_full_bucket_has_refilled_but_at_least_for_two_windows() {
        let window = Duration::from_nanos(1);
        assert_eq!(retention(Quota::new(2, window)), 2 * window);
        // More windows than a `u32` counts.
        let nanos = 1 << 33;
        assert_eq!(
            retention(Quota::new(1, window).burst(nanos)),
            Duration::from_nanos(nanos)
        );
    }
}
