use smallvec::SmallVec;

use super::owner::Owner;
use crate::{Algorithm, Policy, Quota, algorithm::saturating_nanos, backend::PolicyId};

/// What can be leased of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) id: PolicyId,
    pub(super) quota: Quota,
    /// Its tokens come evenly.
    evenly: bool,
}

impl Terms {
    /// Those of policies that a store knows by these names.
    pub(super) fn of(policies: &[Policy], ids: &[PolicyId]) -> SmallVec<[Self; 4]> {
        let terms = policies.iter().zip(ids);
        // A queue has a turn for each request, and gives no more than one.
        let terms =
            terms.filter(|(policy, _)| !matches!(policy.algorithm(), Algorithm::LeakyQueue { .. }));
        let terms = terms.map(|(policy, &id)| Self {
            id,
            quota: policy.quota(),
            evenly: policy.algorithm().is_bucket(),
        });
        terms.collect()
    }

    /// The most that there can be of a quota: the burst, or the limit where there is none.
    pub(super) fn most(&self, quota: Option<Quota>) -> u64 {
        let quota = quota.unwrap_or(self.quota);
        if self.evenly {
            quota.burst_size()
        } else {
            quota.limit()
        }
    }

    /// What this owner's bucket gains in a time, at most, in nanoseconds; none if it gains in steps.
    pub(super) fn gained(&self, owner: &Owner, time: u64) -> Option<u64> {
        let quota = owner.quota.unwrap_or(self.quota);
        let window = u128::from(saturating_nanos(quota.window())).max(1);
        let tokens = (u128::from(time) * u128::from(quota.limit())).div_ceil(window);
        self.evenly
            .then(|| u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}
