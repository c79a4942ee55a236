use std::sync::Arc;

use super::{atomic_table::AtomicTable, context::MemoryContext, store::Store};
use crate::{Decision, algorithm::Bucket, key::KeyBytes};

/// A policy of a [`Memory`](super::Memory) that is decided alone. Decides on charges under the policy's own quota. Such
/// a charge can be rejected, but causes no error.
pub(crate) struct SinglePolicy {
    pub(super) context: MemoryContext,
    pub(super) store: Arc<dyn Store>,
    /// The same store, if the algorithm is a token bucket. Its type is known here, so its code is inlined.
    pub(super) bucket: Option<Arc<AtomicTable<Bucket<false>>>>,
}

impl SinglePolicy {
    /// Takes `cost` tokens if they are free.
    ///
    /// Inlined, so that the decision is written directly to the caller's variable.
    #[inline(always)]
    pub(crate) fn charge(&self, key: KeyBytes<'_>, cost: u64) -> Decision {
        // Before the hash, because a processor usually reads its counter only after all instructions before it.
        let nanos = self.context.now();
        let key = self.context.hash(key);
        if let Some(bucket) = &self.bucket
            && let Some(fast) = bucket.take_own(key, nanos, cost)
        {
            return fast.decision(cost);
        }
        self.store.charge_own(key, nanos, cost).decision(cost)
    }
}
