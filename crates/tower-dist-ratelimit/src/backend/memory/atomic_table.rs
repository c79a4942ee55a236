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

    /// Changes a key's state as [`Slots::update`] does. While many slots are unused, most keys have their slot in the
    /// first of their three lines. The code for the other lines is not inlined.
    #[inline(always)]
    fn swap(&self, key: Fingerprint, mut change: impl FnMut(u64) -> Option<u64>) -> u64 {
        let state = self.slots.swap_first(key, &mut change);
        state.unwrap_or_else(|| self.slots.update(key, &mut change))
    }

    /// A faster [`charge_own`](Store::charge_own). Returns `None` and takes nothing if the key has no slot in the first
    /// of its three [lines](Slots). While many slots are unused, most keys have their slot there.
    #[inline(always)]
    pub(super) fn take_own(&self, key: Fingerprint, nanos: u64, cost: u64) -> Option<FastDecision> {
        self.slots.prefetch(key);
        let now = self.arithmetic.at(key.at(nanos));
        let (take, mut next) = (Take::own(cost), None);
        let state = self.slots.swap_first(key, |state| {
            next = after(&self.arithmetic, state, now, &take);
            next
        })?;
        // As `OneNumber::decide`, but an allowed charge does not become a whole decision here.
        Some(match next {
            Some(_) => FastDecision::Allowed(self.arithmetic.allow(state, now, &take, cost)),
            None => FastDecision::Whole(self.arithmetic.decide(state, now, &Take::own(cost))),
        })
    }
}

impl<A: OneNumber> Store for AtomicTable<A> {
    fn prefetch(&self, key: Fingerprint) {
        self.slots.prefetch(key);
    }

    fn charge(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision {
        let now = self.arithmetic.at(key.at(nanos));
        let state = self.swap(key, |state| after(&self.arithmetic, state, now, take));
        self.arithmetic.decide(state, now, take)
    }

    fn charge_own(&self, key: Fingerprint, nanos: u64, cost: u64) -> FastDecision {
        let fast = self.take_own(key, nanos, cost);
        fast.unwrap_or_else(|| FastDecision::Whole(self.charge(key, nanos, &Take::own(cost))))
    }

    fn check(&self, key: Fingerprint, nanos: u64, take: &Take<'_>) -> Decision {
        let state = self.swap(key, |_| None);
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
