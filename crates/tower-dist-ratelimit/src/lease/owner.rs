use crate::{
    Quota,
    backend::{Charge, PolicyId},
};

/// Longest stored key in bytes. The keys of 1,024 slots take at most 1 MB.
const LONGEST_KEY: usize = 1_000;

/// The policy, key and quota that a lease is charged to.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) policy: PolicyId,
    key: Box<[u8]>,
    pub(super) quota: Option<Quota>,
}

impl Owner {
    /// Returns `None` if the key is too long to store.
    pub(super) fn of(charge: &Charge<'_>) -> Option<Self> {
        (charge.key.len() <= LONGEST_KEY).then(|| Self {
            policy: charge.policy,
            key: charge.key.into(),
            quota: charge.quota,
        })
    }

    pub(super) fn charge(&self, cost: u64) -> Charge<'_> {
        Charge {
            quota: self.quota,
            ..Charge::new(self.policy, &self.key, cost)
        }
    }
}
