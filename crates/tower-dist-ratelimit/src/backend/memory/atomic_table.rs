use super::{
    fingerprint::Fingerprint,
    slots::Slots,
    store::{FastDecision, Store, no_memory},
};
use crate::{
    BuildError, Decision,
    algorithm::{OneNumber, Take},
};

/// The keys of one policy, each with a state of one number.
pub(super) struct AtomicTable<A> {
    arithmetic: A,
    pub(super) slots: Slots,
}

impl<A: OneNumber> AtomicTable<A> {
    /// Slots for `capacity` keys.
    ///
    /// # Errors
    ///
    /// The system has no memory for the slots.
    pub(super) fn new(arithmetic: A, capacity: usize) -> Result<Self, BuildError> {
        let slots = Slots::new(capacity).ok_or_else(|| no_memory(capacity))?;
        Ok(Self { arithmetic, slots })
    }

    /// Charges a key, and returns its state before the charge.
    #[inline(always)]
    fn swap(&self, key: Fingerprint, now: A::Moment, take: &Take<'_>) -> u64 {
        // While many slots are unused, most keys have their slot in the first of their three lines. The code for the
        // other lines is not inlined.
        let charge = |state| after(&self.arithmetic, state, now, take);
        let state = self.slots.swap_first(key, charge);
        state.unwrap_or_else(|| self.take_elsewhere(key, now, *take))
    }

    /// Charges a key for which [`swap_first`](Slots::swap_first) returns `None`: usually its slot is not in the first
    /// of its three [lines](Slots), or it has no slot. Returns the state before the charge. `take` is passed by value, so
    /// that [`swap`](Self::swap) can keep it in registers.
    #[inline(never)]
    fn take_elsewhere(&self, key: Fingerprint, now: A::Moment, take: Take<'_>) -> u64 {
        let charge = &mut |state| after(&self.arithmetic, state, now, &take);
        self.slots.update(key, charge)
    }
}

impl<A: OneNumber> Store for AtomicTable<A> {
    fn prefetch(&self, key: Fingerprint) {
        self.slots.prefetch(key);
    }

    fn charge(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision {
        let now = self.arithmetic.at(key.at(nanos));
        let state = self.swap(key, now, take);
        self.arithmetic.decide(state, now, take)
    }

    fn charge_own(&self, key: Fingerprint, nanos: u64, cost: u64) -> FastDecision {
        self.slots.prefetch(key);
        let now = self.arithmetic.at(key.at(nanos));
        let take = Take::own(cost);
        let state = self.swap(key, now, &take);
        // As `OneNumber::decide`, but an allowed charge does not become a whole decision here.
        match self.arithmetic.granted(state, now, &take) {
            Some(granted) => {
                FastDecision::Allowed(self.arithmetic.allow(state, now, &take, granted))
            }
            None => FastDecision::Whole(self.arithmetic.reject(state, now, &take)),
        }
    }

    fn check(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision {
        let state = self.slots.swap_first(key, |_| None);
        let state = state.unwrap_or_else(|| self.slots.update(key, &mut |_| None));
        let now = self.arithmetic.at(key.at(nanos));
        self.arithmetic.decide(state, now, take)
    }

    fn settle(&self, key: Fingerprint, nanos: u64, _: &Take<'_>, delta: i64) {
        let now = self.arithmetic.at(key.at(nanos));
        self.slots.update(key, &mut |state| {
            let settled = self.arithmetic.settle(state, now, delta);
            (settled != state).then_some(settled)
        });
    }

    fn reset(&self, key: Fingerprint) {
        self.slots
            .update(key, &mut |state| (state != 0).then_some(0));
    }

    fn len(&self) -> usize {
        self.slots.used()
    }
}

/// Returns the state after a charge, or `None` if nothing is granted.
#[inline(always)]
fn after<A: OneNumber>(arithmetic: &A, state: u64, now: A::Moment, take: &Take<'_>) -> Option<u64> {
    let granted = arithmetic.granted(state, now, take)?;
    (granted > 0).then(|| arithmetic.take(state, now, granted))
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
