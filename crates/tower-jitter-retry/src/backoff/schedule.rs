use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use tower_attempt::RetryReason;

use super::Backoff;

/// The delays of a [`Backoff`], one after another, without end.
///
/// It is not `Clone`: a copy would wait just as long as the original, which is what jitter is
/// there to prevent.
#[derive(Debug)]
pub struct Schedule {
    backoff: Backoff,
    random: Xoshiro256PlusPlus,
    retry: u32,
    previous: Option<Duration>,
}

impl Schedule {
    pub(crate) fn new(backoff: Backoff, seed: u64) -> Self {
        Self {
            backoff,
            // Stable over versions and platforms, as a seed promises; `SmallRng` is not.
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            retry: 0,
            previous: None,
        }
    }

    /// The next delay after a failure of this kind.
    pub(crate) fn next_after(&mut self, reason: RetryReason) -> Duration {
        let random = self.random();
        let delay = self
            .backoff
            .delay(self.retry, reason, self.previous, random);
        self.retry = self.retry.saturating_add(1);
        self.previous = Some(delay);
        delay
    }

    /// Random bits of this schedule's own.
    pub(crate) fn random(&mut self) -> u64 {
        self.random.next_u64()
    }
}

impl Iterator for Schedule {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        Some(self.next_after(RetryReason::Transient))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (usize::MAX, None)
    }
}

/// Gives each schedule a seed of its own.
#[derive(Debug)]
pub(crate) struct Seeds {
    first: u64,
    given: AtomicU64,
}

impl Seeds {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        // std's own random keys: no system call can fail, and no two of them are the same.
        let first = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
        Self {
            // Spreads seeds that lie close together, which would otherwise share their successors.
            first: Xoshiro256PlusPlus::seed_from_u64(first).next_u64(),
            given: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.first
            .wrapping_add(self.given.fetch_add(1, Ordering::Relaxed))
    }
}
