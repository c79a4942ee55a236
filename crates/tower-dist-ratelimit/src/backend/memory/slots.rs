use std::{
    array,
    sync::atomic::Ordering::{AcqRel, Acquire, Release},
};

use super::{
    fingerprint::Fingerprint,
    line::{Line, Lines, Slot, WAYS},
    sync::{Locked, Mutex, MutexGuard, lock, lock_all},
};

/// Number of locks for inserting. A *stripe* is the set of lines that share one lock. There are enough locks that two
/// inserts seldom contend.
const STRIPES: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    64
};

/// Maximum number of lines, 4 MB, for which nothing is prefetched. So small a table is usually in the processor's
/// caches, where a prefetch would take longer than it saves.
const CACHED_LINES: usize = 1 << 16;

/// A key can be in one of three lines of slots. A look-up searches them in this order.
const CHOICES: [usize; 3] = [0, 1, 2];

/// The keys of one policy, each with a state of one number.
///
/// A key has its slot in one of three lines, which its fingerprint selects. To charge a key that has a slot usually
/// takes one compare-and-swap on the slot's value. An insert holds the locks of the key's three lines, so a key has at
/// most one slot. If no slot of these lines is unused, an insert gives the new key the slot with the lowest value,
/// usually the slot of the least limited key.
pub(super) struct Slots {
    lines: Lines,
    stripes: Box<[Mutex<()>; STRIPES]>,
    /// For each stripe of lines, the [place](Slot::place) that the last insert gave to a key, and the value that it wrote
    /// there. Accessed only under the stripe's lock.
    last_inserts: Box<[Mutex<(usize, u64)>; STRIPES]>,
}

impl Slots {
    /// Slots for `capacity` keys. Returns `None` if the system has no memory for them.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        Some(Self {
            lines: Lines::unused(lines_for(capacity))?,
            stripes: Box::new(array::from_fn(|_| Mutex::new(()))),
            last_inserts: Box::new(array::from_fn(|_| Mutex::new((0, 0)))),
        })
    }

    /// Returns the number of slots with a state.
    pub(super) fn used(&self) -> usize {
        let lines = (0..self.lines.len()).map(|number| self.lines.get(number));
        let slots = lines.flat_map(Line::slots);
        slots.filter(|slot| slot.value.load(Acquire) != 0).count()
    }

    /// Starts to fetch the first two lines of a key from memory, if there are more than `CACHED_LINES` lines.
    #[inline]
    pub(super) fn prefetch(&self, key: Fingerprint) {
        if self.lines.len() > CACHED_LINES {
            for number in key.places(self.lines.len()) {
                self.lines.prefetch(number);
            }
        }
    }

    /// Changes the value of a key whose slot is in the first of its three lines, as [`update`](Self::update) does.
    /// Returns `None` if the key has no slot there, or if another key's insert takes the slot meanwhile.
    #[inline(always)]
    pub(super) fn swap_first(
        &self,
        key: Fingerprint,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        self.swap(self.line(key, 0).find(key)?, key, change)
    }

    /// Changes a key's value in one atomic step, and returns the value before.
    ///
    /// `change` receives the value, which is 0 if the key has no slot. It returns the new value, or `None` to keep the
    /// old one. It can be called again, for example if another thread changes the value first.
    pub(super) fn update(
        &self,
        key: Fingerprint,
        change: &mut dyn FnMut(u64) -> Option<u64>,
    ) -> u64 {
        loop {
            if let Some(slot) = self.find(key) {
                if let Some(seen) = self.swap(slot, key, &mut *change) {
                    return seen;
                }
            } else {
                // Another key's insert may just have taken this key's slot. If the slot's value has changed meanwhile,
                // the insert gives the slot back. So a key that `find` has missed may have its slot again. Under the
                // locks, `find` misses no key that has a slot.
                let _locked = self.lock(key);
                if self.find(key).is_none() {
                    if let Some(next) = change(0) {
                        self.insert(key, next);
                    }
                    return 0;
                }
            }
        }
    }

    /// Changes the value of the key's slot. Returns `None` if the slot no longer belongs to the key.
    #[inline(always)]
    fn swap(
        &self,
        slot: Slot<'_>,
        key: Fingerprint,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut seen = slot.value.load(Acquire);
        // A new owner writes its value after the old key is removed, so the key is checked after the value is read.
        while slot.belongs_to(key) {
            let Some(next) = change(seen) else {
                return Some(seen);
            };
            match slot.value.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => {
                    let keeps = slot.belongs_to(key) || self.keeps_slot(slot, key, seen, next);
                    return keeps.then_some(seen);
                }
                // Tries again immediately: after the failed exchange, this thread holds the cache line, so it will
                // probably succeed next.
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Waits for the insert that took the slot, and returns whether the key got the slot back.
    ///
    /// The caller's charge has changed the slot's value. There are three cases:
    ///
    /// - The insert read the value before the charge, and tries to replace it after the charge. Then the insert usually
    ///   fails, and gives the slot back to the key.
    /// - The insert read the value after the charge. Then the key has lost its state, and the charge with it.
    /// - The insert replaced the value before the charge. Then the slot's value was `seen` again, and the new owner was
    ///   charged. This function undoes the charge if the insert is still the stripe's last one, it wrote `seen`, and
    ///   the value is still `next`. Otherwise the charge stays, and the new owner can have too few tokens.
    #[cold]
    fn keeps_slot(&self, slot: Slot<'_>, key: Fingerprint, seen: u64, next: u64) -> bool {
        let _locked = self.lock(key);
        let mine = slot.belongs_to(key);
        if !mine && *self.last_inserts(slot) == (slot.place(), seen) {
            let _ = slot.value.compare_exchange(next, seen, AcqRel, Acquire);
        }
        mine
    }

    /// Returns the last insert into the stripe of `slot`. A stripe is a set of lines that share one lock. Their indices
    /// differ by multiples of `STRIPES`, so their memory addresses select the same entry.
    fn last_inserts(&self, slot: Slot<'_>) -> MutexGuard<'_, (usize, u64)> {
        lock(&self.last_inserts[slot.line() % STRIPES])
    }

    /// Gives a slot to a key without a slot, and sets the slot's value. The caller holds the locks of the key's lines.
    #[inline(never)]
    fn insert(&self, key: Fingerprint, value: u64) {
        loop {
            let (slot, seen) = self.victim(key);
            let owner = slot.key.load(Acquire);
            // The old key is removed before the value changes. So if a charge to the old key reads the new value, it
            // finds the old key removed and changes nothing. `keeps_slot` handles a charge that has read an old value
            // equal to the new one.
            slot.key.store(Fingerprint::RESERVED, Release);
            if slot
                .value
                .compare_exchange(seen, value, AcqRel, Acquire)
                .is_ok()
            {
                slot.key.store(key.bits(), Release);
                *self.last_inserts(slot) = (slot.place(), value);
                return;
            }
            // The old key's value has changed meanwhile, and may no longer be the lowest: chooses again.
            slot.key.store(owner, Release);
        }
    }

    /// Returns the slot to give to a new key, and the slot's value.
    ///
    /// 1. An unused slot of the key's first line, if that line has at least two.
    /// 2. Otherwise an unused slot of the line with the most unused slots.
    /// 3. Otherwise the slot with the lowest value: usually the slot of the least limited key, or of the key that was
    ///    limited longest ago.
    fn victim(&self, key: Fingerprint) -> (Slot<'_>, u64) {
        let new = |line: Line<'_>| {
            let values = line.slots().map(|slot| slot.value.load(Acquire));
            values.filter(|&value| value == 0).count()
        };
        let mut lines = CHOICES.map(|choice| self.line(key, choice));
        if new(lines[0]) < 2 {
            // Of several lines with the most unused slots, the first one.
            let best = (0..lines.len()).rev().max_by_key(|&n| new(lines[n]));
            lines.swap(0, best.unwrap_or(0));
        }
        let slots = lines.into_iter().flat_map(Line::slots);
        slots
            .map(|slot| (slot, slot.value.load(Acquire)))
            .min_by_key(|&(_, value)| value)
            .unwrap_or_else(|| unreachable!("a line has slots"))
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> Option<Slot<'_>> {
        let mut lines = CHOICES.into_iter().map(|choice| self.line(key, choice));
        lines.find_map(|line| line.find(key))
    }

    /// Returns the first, second or third line of a key.
    #[inline]
    fn line(&self, key: Fingerprint, choice: usize) -> Line<'_> {
        self.lines.get(key.place(choice, self.lines.len()))
    }

    /// Locks all lines of a key.
    fn lock(&self, key: Fingerprint) -> Locked<'_> {
        let stripes = CHOICES.map(|choice| key.place(choice, self.lines.len()) % STRIPES);
        lock_all(&*self.stripes, stripes.into_iter())
    }
}

/// Returns the number of lines for this many keys.
///
/// There are two slots per key. If half of the slots are taken, a key with three lines of four slots nearly always
/// finds a free slot. About eight of nine keys are then in their first line. (In 60 simulations of 100,000 keys, a
/// single key found no free slot. With 57 % of the slots taken, 0.3 keys per simulation found no free slot. With two
/// buckets of eight slots, a smaller table does as well, but each bucket fills two cache lines.)
fn lines_for(capacity: usize) -> usize {
    // In the loom model, keys contend for a single line.
    let slots = if WAYS == 1 {
        capacity
    } else {
        capacity.saturating_mul(2)
    };
    slots.div_ceil(WAYS).max(1)
}

#[cfg(all(test, tower_dist_ratelimit_loom))]
mod loom;

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
