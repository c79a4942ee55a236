use std::{fmt, sync::Arc, time::Duration};

use super::{frame::Frame, store::Store};
use crate::Decision;

/// A policy of a [`Memory`](super::Memory) that is decided alone and by its own quota, as most policies are. Such a
/// decision never fails.
pub(crate) struct Alone {
    pub(super) frame: Frame,
    pub(super) store: Arc<dyn Store>,
    pub(super) limit: u64,
}

impl Alone {
    /// Takes `cost` tokens, unless there are fewer.
    #[inline(always)]
    pub(crate) fn charge(&self, key: &[u8], cost: u64) -> Decision {
        match self.store.charge_now(&self.frame, key, cost) {
            Charged::Passed(remaining, reset_after) => {
                Decision::allow(cost, self.limit, remaining, reset_after)
            }
            Charged::Else(decision) => decision,
        }
    }
}

impl fmt::Debug for Alone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alone").finish_non_exhaustive()
    }
}

/// The result of a charge by a policy's own quota. Returning a whole [`Decision`] takes as long as making it.
pub(super) enum Charged {
    /// Allowed without a delay: the remaining tokens, and the time until the key is as good as unused.
    Passed(u64, Duration),
    Else(Decision),
}

impl Charged {
    #[inline(always)]
    pub(super) fn of(decision: Decision) -> Self {
        match decision.allowed && decision.delay.is_zero() {
            true => Self::Passed(decision.remaining, decision.reset_after),
            false => Self::Else(decision),
        }
    }
}
