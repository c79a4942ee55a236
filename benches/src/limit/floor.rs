//! The parts of a decision that no correct limiter can omit: read the clock, hash the key, and charge the key's state
//! in one atomic step. The floor compares no keys.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hash};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{AcqRel, Acquire};

use tokio::time::Instant;

use super::PER_SECOND;

pub(super) const FLOOR: &str = "floor";
pub(super) const CLOCK: &str = "clock";

/// A fingerprint and a state.
const WORDS: usize = 2;
/// Slots per key, as in `Memory`.
const SLOTS: usize = 2;

/// A GCRA. Its table is as large as `Memory`'s, with the same clock and the same kind of hash.
pub(crate) struct Floor {
    hasher: RandomState,
    created: Instant,
    /// Nanoseconds until a token is back.
    period: u64,
    /// Nanoseconds until a full burst is back.
    window: u64,
    words: Vec<AtomicU64>,
}

impl Floor {
    /// A limit that no subject can exhaust.
    pub(crate) fn plenty(keys: u32) -> Self {
        Self::new(keys, 1, PER_SECOND.into())
    }

    /// One request per hour.
    pub(crate) fn one_per_hour(keys: u32) -> Self {
        Self::new(keys, 3_600_000_000_000, 1)
    }

    fn new(keys: u32, period: u64, burst: u64) -> Self {
        let slots = SLOTS * usize::try_from(keys).expect("at least 32 bits");
        Self {
            hasher: RandomState::new(),
            created: Instant::now(),
            period,
            window: period * burst,
            words: (0..WORDS * slots).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// Charges one token to the key. Returns the tokens that remain, or the nanoseconds until a token is back.
    pub(crate) fn charge<K: Hash + ?Sized>(&self, key: &K) -> Result<u64, u64> {
        self.charge_by(key, || {
            let nanos = self.created.elapsed().as_nanos();
            u64::try_from(nanos).expect("a bench takes less than 584 years")
        })
    }

    /// Like [`charge`](Self::charge), with another clock. `now` returns the nanoseconds since a fixed time.
    pub(super) fn charge_by<K: Hash + ?Sized>(
        &self,
        key: &K,
        now: impl FnOnce() -> u64,
    ) -> Result<u64, u64> {
        let hash = u128::from(self.hasher.hash_one(key));
        let slot = (hash * (self.words.len() / WORDS) as u128) >> 64;
        let state = &self.words[WORDS * usize::try_from(slot).expect("an index of the table")];
        let now = now();
        let mut seen = state.load(Acquire);
        loop {
            let next = seen.max(now) + self.period;
            let Some(free) = self.window.checked_sub(next - now) else {
                return Err(next - now - self.window);
            };
            match state.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return Ok(free / self.period),
                Err(other) => seen = other,
            }
        }
    }
}
