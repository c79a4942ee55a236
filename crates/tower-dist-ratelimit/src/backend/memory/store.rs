use std::sync::Arc;

use super::{
    alone::Charged, fingerprint::Fingerprint, frame::Frame, numbers::Numbers, shelves::Shelves,
};
use crate::{
    Algorithm, BuildError, Decision, Policy,
    algorithm::{Ask, Bucket, FixedWindow, MAX_LOG},
    arithmetic::Limit,
};

/// The keys of one policy and their states. Times are nanoseconds since the creation of the [`Memory`](super::Memory).
pub(super) trait Store: Send + Sync {
    /// Takes tokens, if they are there.
    fn charge(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>) -> Decision;

    /// Takes tokens now, by the policy's own quota.
    ///
    /// Hashes the key first: a processor can hash while it still writes the last decision, but cannot read the clock.
    fn charge_now(&self, frame: &Frame, key: &[u8], cost: u64) -> Charged {
        let key = frame.hash(key);
        Charged::of(self.charge(key, frame.now(), &Ask::own(cost)))
    }

    /// Returns the decision of [`charge`](Self::charge) without taking tokens.
    fn check(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>) -> Decision;

    /// Puts the quota of a rejected request in force.
    fn adopt(&self, _key: Fingerprint, _nanos: u64, _ask: &Ask<'_>) {}

    /// Takes more tokens, or returns some.
    fn settle(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, delta: i64);

    /// Makes the key as good as unused.
    fn reset(&self, key: Fingerprint);

    /// Number of keys that have a state.
    fn len(&self) -> usize;
}

/// Returns the store that a policy's algorithm needs.
///
/// # Errors
///
/// A quota that the algorithm cannot count; no memory.
pub(super) fn store(policy: &Policy, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    let quota = policy.quota();
    let bucket = |max_wait| -> Result<Arc<dyn Store>, BuildError> {
        Ok(Arc::new(Numbers::new(
            Bucket::new(quota, max_wait)?,
            capacity,
        )?))
    };
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket if !policy.has_dynamic_quotas() => {
            bucket(None)
        }
        Algorithm::LeakyQueue { max_wait } if !policy.has_dynamic_quotas() => {
            bucket(Some(max_wait))
        }
        Algorithm::FixedWindow { staggered } => {
            let window = FixedWindow::new(quota, staggered)?;
            Ok(Arc::new(Numbers::new(window, capacity)?))
        }
        algorithm => {
            let limit = Limit::with_longest_log(algorithm, quota, MAX_LOG)?;
            Ok(Arc::new(Shelves::new(limit.arithmetic, capacity)?))
        }
    }
}

pub(super) fn no_memory(capacity: usize) -> BuildError {
    BuildError::new("capacity", capacity, "what the system has memory for")
}
