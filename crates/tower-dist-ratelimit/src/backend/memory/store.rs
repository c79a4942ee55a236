use std::any::Any;

use super::fingerprint::Fingerprint;
use crate::{
    BuildError, Decision,
    algorithm::{Allowed, Take},
};

/// The keys of one policy and their states. Times are nanoseconds since the creation of the [`Memory`](super::Memory).
pub(crate) trait Store: Any + Send + Sync {
    /// Lets an implementation start to fetch the key's state from memory. The caller can read the clock meanwhile.
    fn prefetch(&self, _key: Fingerprint) {}

    /// Decides on a charge, and takes the granted tokens.
    fn charge(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision;

    /// Makes a [`charge`](Self::charge) of exactly `cost` tokens under the policy's own quota. An implementation can
    /// start to fetch the key's state from memory before it converts the time.
    fn charge_own(&self, key: Fingerprint, nanos: u64, cost: u64) -> FastDecision {
        FastDecision::Whole(self.charge(key, nanos, &Take::own(cost)))
    }

    /// Returns the decision of [`charge`](Self::charge) without taking tokens.
    fn check(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision;

    /// Can put the quota of a request in force, although the request took no tokens. See
    /// [`Arithmetic::adopt`](crate::algorithm::Arithmetic::adopt). Does nothing if the algorithm stores no quota with
    /// the key.
    fn adopt(&self, _key: Fingerprint, _nanos: u64, _ask: &Take<'_>) {}

    /// Takes `delta` tokens even if fewer are free. If `delta` is negative, refunds up to `-delta` tokens. The number
    /// of used tokens saturates at a maximum.
    fn settle(&self, key: Fingerprint, nanos: u64, take: &Take<'_>, delta: i64);

    /// Clears the used tokens of a key.
    fn reset(&self, key: Fingerprint);

    /// Returns the number of keys that have a state.
    fn len(&self) -> usize;
}

/// The result of [`Store::charge_own`].
pub(crate) enum FastDecision {
    /// The charge is allowed, and grants its cost.
    Allowed(Allowed),
    /// A rejection, or any decision of a store without a fast path.
    Whole(Decision),
}

impl FastDecision {
    /// Returns the whole decision on a charge that grants `granted` tokens if it is allowed.
    #[inline(always)]
    pub(super) fn decision(self, granted: u64) -> Decision {
        match self {
            Self::Allowed(allowed) => allowed.decision(granted),
            Self::Whole(decision) => decision,
        }
    }
}

pub(super) fn no_memory(capacity: usize) -> BuildError {
    BuildError::new("capacity", capacity, "what the system has memory for")
}
