use crate::{
    Quota,
    backend::{Charge, PolicyId},
};

/// In bytes: with this, a megabyte for all keys of a table.
const LONGEST_KEY: usize = 1_000;

/// Whom tokens were leased for.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) policy: PolicyId,
    key: Box<[u8]>,
    pub(super) quota: Option<Quota>,
}

impl Owner {
    /// None of a key that is too long to be kept.
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
