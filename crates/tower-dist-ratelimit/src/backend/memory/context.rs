use std::{collections::hash_map::RandomState, hash::BuildHasher};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use super::fingerprint::Fingerprint;
use crate::algorithm::saturating_nanos;

/// The hash function and the clock of a [`Memory`](super::Memory).
#[derive(Clone, Copy)]
pub(crate) struct MemoryContext {
    hasher: SipHasher13,
    created: Instant,
}

impl MemoryContext {
    pub(super) fn new() -> Self {
        // Takes the hash's random seed from the standard library's hash maps.
        let random = RandomState::new();
        Self {
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
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
        Fingerprint::of(key, &self.hasher)
    }
}
