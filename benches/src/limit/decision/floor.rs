//! The parts of a decision that no correct limiter can omit: read the clock, hash the key, and charge the key's state
//! in one atomic step. The floor compares no keys and returns no numbers.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use tokio::time::Instant;

pub(super) const FLOOR: &str = "floor";
pub(super) const CLOCK: &str = "clock";

/// A fingerprint and a state.
const WORDS: usize = 2;
/// Slots per key, as in `Memory`.
const SLOTS: usize = 2;

/// A table as large as `Memory`'s, with the same clock and the same kind of hash.
pub(super) struct Floor {
    hasher: RandomState,
    created: Instant,
    words: Vec<AtomicU64>,
}

impl Floor {
    pub(super) fn new(keys: u32) -> Self {
        let slots = SLOTS * usize::try_from(keys).expect("at least 32 bits");
        Self {
            hasher: RandomState::new(),
            created: Instant::now(),
            words: (0..WORDS * slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Charges one nanosecond to the key.
    pub(super) fn charge(&self, key: &str) {
        let hash = u128::from(self.hasher.hash_one(key));
        let slot = (hash * (self.words.len() / WORDS) as u128) >> 64;
        let state = &self.words[WORDS * usize::try_from(slot).expect("an index of the table")];
        let nanos = self.created.elapsed().as_nanos();
        let now = u64::try_from(nanos).expect("a bench takes less than 584 years");
        let mut seen = state.load(Acquire);
        while let Err(other) = state.compare_exchange(seen, seen.max(now) + 1, AcqRel, Acquire) {
            seen = other;
        }
    }
}
