use std::{collections::hash_map::RandomState, hash::BuildHasher};

use siphasher::sip::SipHasher13;
use tokio::time::Instant;

use super::fingerprint::Fingerprint;
use crate::{algorithm::saturating_nanos, key::KeyBytes};

/// The hash function and the clock of a [`Memory`](super::Memory).
#[derive(Clone)]
pub(crate) struct MemoryContext {
    hasher: SipHasher13,
    clock: MemoryClock,
}

/// A clock, with the time when the memory was created.
#[derive(Clone)]
pub(super) enum MemoryClock {
    Tokio(Instant),
    #[cfg(feature = "processor-clock")]
    Processor(quanta::Clock, u64),
}

impl MemoryClock {
    pub(super) fn tokio() -> Self {
        Self::Tokio(Instant::now())
    }

    #[cfg(feature = "processor-clock")]
    pub(super) fn processor() -> Self {
        let clock = quanta::Clock::new();
        let created = clock.raw();
        Self::Processor(clock, created)
    }
}

impl MemoryContext {
    pub(super) fn new(clock: MemoryClock) -> Self {
        // Takes the hash's random seed from the standard library's hash maps.
        let random = RandomState::new();
        Self {
            hasher: SipHasher13::new_with_keys(random.hash_one(0), random.hash_one(1)),
            clock,
        }
    }

    /// Nanoseconds since the creation of the memory.
    #[inline]
    pub(super) fn now(&self) -> u64 {
        match &self.clock {
            MemoryClock::Tokio(created) => {
                let since = Instant::now().checked_duration_since(*created);
                since.map_or(0, saturating_nanos)
            }
            #[cfg(feature = "processor-clock")]
            MemoryClock::Processor(clock, created) => clock.delta_as_nanos(*created, clock.raw()),
        }
    }

    #[inline]
    pub(super) fn hash(&self, key: KeyBytes<'_>) -> Fingerprint {
        Fingerprint::of(key, &self.hasher)
    }
}
