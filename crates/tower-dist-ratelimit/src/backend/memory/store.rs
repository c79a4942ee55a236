use std::sync::Arc;

use super::{
    charged::Charged, fingerprint::Fingerprint, frame::Frame, shelves::Shelves, slots::Slots,
};
use crate::{
    Algorithm, BuildError, Decision, Policy,
    algorithm::{
        Adjusted, Arithmetic, Ask, FirstHit, FixedWindow, LeakyQueue, MAX_LOG, OneNumber,
        SlidingLog, SlidingWindow, TokenBucket,
    },
};

/// One policy's keys and their states. The time is in nanoseconds since the limiter's creation.
pub(super) trait Store: Send + Sync {
    /// Takes tokens, if they are there.
    fn charge(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision);

    /// Takes tokens now, by the policy's own quota. The whole way in one call.
    ///
    /// The key first: a processor can hash it while it still writes the last decision, but cannot read the clock.
    fn charge_now(&self, frame: &Frame, key: &[u8], cost: u64) -> Charged {
        let key = frame.hash(key);
        let mut out = Decision::default();
        self.charge(key, frame.now(), &Ask::own(cost), &mut out);
        Charged::of(out)
    }

    /// What [`charge`](Self::charge) would say, without taking anything.
    fn check(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision);

    /// Puts the quota of a rejected request in force.
    fn adopt(&self, _key: Fingerprint, _nanos: u64, _ask: &Ask<'_>) {}

    /// Takes more tokens, or puts some back.
    fn settle(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, delta: i64);

    /// Makes the key as good as unused.
    fn reset(&self, key: Fingerprint);
}

/// The store that a policy's algorithm needs.
///
/// # Errors
///
/// A quota that the algorithm cannot count; no memory.
pub(super) fn store(policy: &Policy, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    let quota = policy.quota();
    let dynamic = policy.has_dynamic_quotas();
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let bucket = TokenBucket::new(quota)?;
            if dynamic {
                shelves(Adjusted::new(quota, bucket), capacity)
            } else {
                slots(bucket, capacity)
            }
        }
        Algorithm::LeakyQueue { max_wait } => {
            let queue = LeakyQueue::new(quota, max_wait)?;
            if dynamic {
                shelves(Adjusted::new(quota, queue), capacity)
            } else {
                slots(queue, capacity)
            }
        }
        Algorithm::FixedWindow { staggered } => {
            slots(FixedWindow::new(quota, staggered)?, capacity)
        }
        Algorithm::FixedWindowFromFirstRequest => shelves(FirstHit::new(quota)?, capacity),
        Algorithm::SlidingWindow => {
            let windows = SlidingWindow::interpolated(quota, 1)?;
            shelves(windows, capacity)
        }
        Algorithm::SlidingWindowBuckets { count } => {
            let windows = SlidingWindow::interpolated(quota, count)?;
            shelves(windows, capacity)
        }
        Algorithm::SlidingWindowStrict { count } => {
            shelves(SlidingWindow::whole(quota, count)?, capacity)
        }
        Algorithm::SlidingWindowLog => shelves(SlidingLog::new(quota, MAX_LOG)?, capacity),
    }
}

fn slots(arithmetic: impl OneNumber, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    Ok(Arc::new(Slots::new(arithmetic, capacity)?))
}

fn shelves(arithmetic: impl Arithmetic, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    Ok(Arc::new(Shelves::new(arithmetic, capacity)?))
}

pub(super) fn no_memory(capacity: usize) -> BuildError {
    BuildError::new("capacity", capacity, "what the system has memory for")
}
