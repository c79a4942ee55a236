use std::sync::Arc;

use super::{
    context::MemoryContext,
    store::{FastDecision, Store},
};
use crate::{Decision, key::KeyBytes};

/// A policy of a [`Memory`](super::Memory) that is decided alone. Decides on charges under the policy's own quota. Such
/// a charge can be rejected, but causes no error.
pub(crate) struct SinglePolicy {
    pub(super) context: MemoryContext,
    pub(super) store: Arc<dyn Store>,
}

impl SinglePolicy {
    /// Takes `cost` tokens if they are free.
    ///
    /// Inlined, so that the decision is written directly to the caller's variable.
    #[inline(always)]
    pub(crate) fn charge(&self, key: KeyBytes<'_>, cost: u64) -> Decision {
        // Before the hash, because a processor usually reads its counter only after all instructions before it.
        let nanos = self.context.now();
        match self.store.charge_own(self.context.hash(key), nanos, cost) {
            FastDecision::Allowed(allowed) => allowed.decision(cost),
            FastDecision::Whole(decision) => decision,
        }
    }
}
