use std::{fmt, sync::Arc};

use super::{frame::Frame, store::Store};
use crate::Decision;

/// A policy of a [`Memory`](super::Memory) that is decided by itself and by its own quota, which most are: its store without the
/// way there. It never fails, so nobody has to watch whether it does.
pub(crate) struct Alone {
    frame: Frame,
    store: Arc<dyn Store>,
    limit: u64,
}

impl Alone {
    pub(super) fn new(frame: Frame, store: Arc<dyn Store>, limit: u64) -> Self {
        Self {
            frame,
            store,
            limit,
        }
    }

    /// Takes `cost` tokens, if they are there.
    #[inline(always)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64) -> Decision {
        let charged = self.store.charge_now(&self.frame, key, cost);
        charged.decision(cost, self.limit)
    }
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}
