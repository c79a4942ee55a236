use std::{sync::Arc, time::Duration};

use super::{
    context::MemoryContext,
    store::{Charged, Store},
};
use crate::Decision;

/// A policy of a [`Memory`](super::Memory) that is decided alone and has no dynamic quotas, like most policies. Its
/// decisions never fail.
pub(crate) struct SinglePolicy {
    pub(super) context: MemoryContext,
    pub(super) store: Arc<dyn Store>,
    pub(super) limit: u64,
}

impl SinglePolicy {
    /// Takes `cost` tokens if they are free.
    ///
    /// Inlined, so that the caller's place receives the decision without a copy.
    #[inline(always)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64) -> Decision {
        match self.charge_store(key, cost) {
            Charged::Allowed(rest) => {
                let reset_after = Duration::from_nanos(rest.reset_after);
                Decision::allow(cost, self.limit, rest.remaining, reset_after)
            }
            Charged::Decided(decision) => decision,
        }
    }

    #[inline(never)]
    fn charge_store(&self, key: &[u8], cost: u64) -> Charged {
        let key = self.context.hash(key);
        self.store.charge_own(key, &self.context, cost)
    }
}
