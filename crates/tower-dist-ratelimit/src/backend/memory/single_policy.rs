use std::sync::Arc;

use super::{context::MemoryContext, store::Store};
use crate::{Decision, algorithm::Take};

/// A policy of a [`Memory`](super::Memory) that is decided alone and has no dynamic quotas, like most policies. Its
/// decisions never fail.
pub(crate) struct SinglePolicy {
    pub(super) context: MemoryContext,
    pub(super) store: Arc<dyn Store>,
}

impl SinglePolicy {
    /// Takes `cost` tokens if they are free, and writes the decision to `out`. Returns whether the request is allowed.
    #[inline(never)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64, out: &mut Decision) -> bool {
        // Hashes before it reads the clock: a processor can hash while it waits for the key's bytes, but not while it
        // reads the clock.
        let key = self.context.hash(key);
        self.store.prefetch(key);
        self.store
            .charge(key, self.context.now(), &Take::own(cost), out);
        out.allowed
    }
}
