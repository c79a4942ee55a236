use smallvec::SmallVec;

use super::owner::Owner;
use crate::{Algorithm, Policy, Quota, algorithm::saturating_nanos, backend::PolicyId};

/// Lease terms of one policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Terms {
    pub(super) id: PolicyId,
    pub(super) quota: Quota,
    /// Whether tokens arrive evenly, as in a bucket.
    evenly: bool,
}

impl Terms {
    /// Returns the terms of the policies that can be leased. The backend knows the policies by these ids.
    pub(super) fn of(policies: &[Policy], ids: &[PolicyId]) -> SmallVec<[Self; 4]> {
        let terms = policies.iter().zip(ids);
        // A leaky queue schedules each request, and never grants more than one.
        let terms =
            terms.filter(|(policy, _)| !matches!(policy.algorithm(), Algorithm::LeakyQueue { .. }));
        let terms = terms.map(|(policy, &id)| Self {
            id,
            quota: policy.quota(),
            evenly: policy.algorithm().is_bucket(),
        });
        terms.collect()
    }

    /// Returns the maximum tokens: the burst of a bucket, or the limit of a window.
    pub(super) fn most(&self, quota: Option<Quota>) -> u64 {
        let quota = quota.unwrap_or(self.quota);
        if self.evenly {
            quota.burst_size()
        } else {
            quota.limit()
        }
    }

    /// Returns the most tokens that the owner's bucket gains in `time` nanoseconds. `None` for windows.
    pub(super) fn gained(&self, owner: &Owner, time: u64) -> Option<u64> {
        let quota = owner.quota.unwrap_or(self.quota);
        let window = u128::from(saturating_nanos(quota.window())).max(1);
        let tokens = (u128::from(time) * u128::from(quota.limit())).div_ceil(window);
        self.evenly
            .then(|| u64::try_from(tokens).unwrap_or(u64::MAX))
    }
}
