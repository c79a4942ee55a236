use std::sync::Arc;

use super::{frame::Frame, store::Store};
use crate::{Decision, algorithm::Ask};

/// A policy of a [`Memory`](super::Memory) that is decided alone and by its own quota, as most policies are. Such a
/// decision never fails.
pub(crate) struct Alone {
    pub(super) frame: Frame,
    pub(super) store: Arc<dyn Store>,
}

impl Alone {
    /// Takes `cost` tokens, unless there are fewer. Returns whether the request is allowed.
    #[inline(never)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64, out: &mut Decision) -> bool {
        // Hashes first: a processor can hash while it waits for the key's bytes, but not while it reads the clock.
        let key = self.frame.hash(key);
        self.store
            .charge(key, self.frame.now(), &Ask::own(cost), out);
        out.allowed
    }
}
