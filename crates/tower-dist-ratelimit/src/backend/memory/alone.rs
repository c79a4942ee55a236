use std::sync::Arc;

use super::{frame::Frame, store::Store};
use crate::{Decision, algorithm::Ask};

/// A policy of a [`Memory`](super::Memory) that is decided alone and has no dynamic quotas, as most policies. Its
/// decisions never fail.
pub(crate) struct Alone {
    pub(super) frame: Frame,
    pub(super) store: Arc<dyn Store>,
}

impl Alone {
    /// Takes `cost` tokens if they are free, and writes the decision to `out`. Returns whether the request is allowed.
    #[inline(never)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64, out: &mut Decision) -> bool {
        // Hashes first: a processor can hash while it waits for the key's bytes, but not while it reads the clock.
        let key = self.frame.hash(key);
        self.store
            .charge(key, self.frame.now(), &Ask::own(cost), out);
        out.allowed
    }
}
