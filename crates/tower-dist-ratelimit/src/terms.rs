use std::time::Duration;

use crate::{
    Algorithm, Policy, Quota,
    algorithm::saturating_nanos,
    backend::{Charge, PolicyId},
};

/// A policy's id in the backend, its algorithm, and a quota: the policy's own or a key's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) id: PolicyId,
    pub(crate) algorithm: Algorithm,
    pub(crate) quota: Quota,
    /// Whether keys can have quotas of their own.
    pub(crate) is_dynamic: bool,
}

impl Terms {
    /// Returns the terms of policies that the backend knows by these ids.
    pub(crate) fn all(policies: &[Policy], ids: &[PolicyId]) -> Box<[Self]> {
        let terms = policies.iter().zip(ids).map(|(policy, &id)| Self {
            id,
            algorithm: policy.algorithm(),
            quota: policy.quota(),
            is_dynamic: policy.has_dynamic_quotas(),
        });
        terms.collect()
    }

    /// Returns the terms of a charge, whose key can have a quota of its own. `None` if no policy has the charge's id.
    #[inline]
    pub(crate) fn of(all: &[Self], charge: &Charge<'_>) -> Option<Self> {
        let mut terms = *all.iter().find(|terms| terms.id == charge.policy)?;
        terms.quota = charge.quota.unwrap_or(terms.quota);
        Some(terms)
    }

    /// Returns the maximum tokens: the limit for a window or log algorithm, otherwise the burst.
    #[inline]
    pub(crate) fn max_tokens(&self) -> u64 {
        if self.algorithm.has_windows() {
            self.quota.limit()
        } else {
            self.quota.burst_size()
        }
    }

    /// Returns the tokens that a bucket gains in `time`, rounded up. `None` for other algorithms.
    pub(crate) fn gained(&self, time: Duration) -> Option<u64> {
        let window = u128::from(saturating_nanos(self.quota.window())).max(1);
        let tokens = u128::from(saturating_nanos(time)) * u128::from(self.quota.limit());
        let tokens = u64::try_from(tokens.div_ceil(window)).unwrap_or(u64::MAX);
        self.algorithm.is_bucket().then_some(tokens)
    }

    /// Returns the time in which a bucket gains these tokens, rounded up. Zero for other algorithms.
    pub(crate) fn time(&self, tokens: u64) -> Duration {
        if self.algorithm.is_bucket() {
            self.quota.time(tokens)
        } else {
            Duration::ZERO
        }
    }
}
