use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rand::rngs::Xoshiro256PlusPlus;
use rand::{Rng, SeedableRng};
use tower_attempt::RetryReason;

use super::Backoff;

/// The delays of a [`Backoff`], in an endless sequence.
///
/// A schedule is not `Clone`: a copy would wait exactly as long as the original, and jitter exists to prevent that.
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
            // A seed promises the same sequence on every version and platform, which `SmallRng` does not.
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            retry: 0,
            previous: None,
        }
    }

    /// Returns the delay before the next retry, after a failure for `reason`.
    pub(crate) fn next_after(&mut self, reason: RetryReason) -> Duration {
        let random = self.random();
        let delay = self
            .backoff
            .delay(self.retry, reason, self.previous, random);
        self.retry = self.retry.saturating_add(1);
        self.previous = Some(delay);
        delay
    }

    /// Returns random bits of this schedule's generator.
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

/// Gives each schedule its own seed.
#[derive(Debug)]
pub(crate) struct Seeds {
    first: u64,
    given: AtomicU64,
}

impl Seeds {
    pub(crate) fn new(seed: Option<u64>) -> Self {
        // Each `RandomState` has random keys of its own, so layers without a seed differ.
        let first = seed.unwrap_or_else(|| RandomState::new().hash_one(()));
        Self {
            // Hashes the seed. Otherwise two layers with the seeds 7 and 8 would both use 8, 9, 10 and so on.
            first: Xoshiro256PlusPlus::seed_from_u64(first).next_u64(),
            given: AtomicU64::new(0),
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.first
            .wrapping_add(self.given.fetch_add(1, Ordering::Relaxed))
    }
}
