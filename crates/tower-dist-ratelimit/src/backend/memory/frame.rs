use tokio::time::Instant;

use super::fingerprint::{Fingerprint, Hasher};
use crate::algorithm::saturating_nanos;

/// The hash of keys and the clock of a [`Memory`](super::Memory).
#[derive(Clone, Copy)]
pub(super) struct Frame {
    hasher: Hasher,
    created: Instant,
}

impl Frame {
    pub(super) fn here_and_now() -> Self {
        Self {
            hasher: Hasher::random(),
            created: Instant::now(),
        }
    }

    /// Nanoseconds since the creation of the memory.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        let since = Instant::now().checked_duration_since(self.created);
        since.map_or(0, saturating_nanos)
    }

    #[inline]
    pub(super) fn hash(&self, key: &[u8]) -> Fingerprint {
        self.hasher.hash(key)
    }
}
