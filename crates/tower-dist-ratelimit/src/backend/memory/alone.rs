use std::{fmt, sync::Arc};

use super::{frame::Frame, store::Store};
use crate::Decision;

/// A policy of a [`Memory`](super::Memory) that is decided alone and by its own quota, as most policies are. Such a
/// decision never fails.
pub(crate) struct Alone {
    pub(super) frame: Frame,
    pub(super) store: Arc<dyn Store>,
}

impl Alone {
    /// Takes `cost` tokens, unless there are fewer.
    #[inline(always)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64) -> Decision {
        self.store.charge_now(&self.frame, key, cost)
    }
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}
