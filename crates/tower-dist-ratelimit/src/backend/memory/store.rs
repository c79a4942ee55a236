use super::{charged::Charged, fingerprint::Fingerprint, frame::Frame};
use crate::{BuildError, Decision, algorithm::Ask};

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

    /// Number of keys that have a state.
    fn len(&self) -> usize;
}

pub(super) fn no_memory(capacity: usize) -> BuildError {
    BuildError::new("capacity", capacity, "what the system has memory for")
}
