use std::sync::Arc;

use super::{
    context::MemoryContext,
    store::{FastDecision, Store},
};
use crate::Decision;

/// A policy of a [`Memory`](super::Memory) that is decided alone. Decides on charges under the policy's own quota. Such
/// a charge can be rejected, but causes no error.
pub(crate) struct SinglePolicy {
    pub(super) context: MemoryContext,
    pub(super) store: Arc<dyn Store>,
    pub(super) limit: u64,
}

impl SinglePolicy {
    /// Takes `cost` tokens if they are free.
    ///
    /// Inlined, so that the decision is written directly to the caller's variable.
    #[inline(always)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64) -> Decision {
        match self.charge_store(key, cost) {
            FastDecision::Numbers(rest) => rest.allow(cost, self.limit),
            FastDecision::Whole(decision) => decision,
        }
    }

    #[inline(never)]
    fn charge_store(&self, key: &[u8], cost: u64) -> FastDecision {
        // Before the hash, because a processor usually reads its counter only after all instructions before it.
        let nanos = self.context.now();
        self.store.charge_own(self.context.hash(key), nanos, cost)
    }
}
