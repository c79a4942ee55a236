use std::{
    array,
    sync::{
        PoisonError,
        atomic::Ordering::{AcqRel, Acquire, Release},
    },
};

use super::{
    fingerprint::Fingerprint,
    line::{Line, Lines, Slot, WAYS},
    sync::{Mutex, MutexGuard},
};

/// Number of locks for inserting. More than a machine has cores, so that two inserts seldom contend.
const STRIPES: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    64
};

/// The lines of a key.
const CHOICES: [usize; 3] = [0, 1, 2];

/// The keys of one policy, each with a state of one number.
///
/// A key has its slot in one of three lines, which its fingerprint names. A charge of a key with a slot is one
/// compare-and-swap on the slot's value. An insert holds the locks of all three lines, so a key has one slot and a
/// slot has one key. A slot with a value that is as good as unused is the first to be given to another key.
pub(super) struct Slots {
    lines: Lines,
    stripes: Box<[Mutex<()>; STRIPES]>,
    /// The last slot that each stripe has given to a key, read only under the stripe's lock.
    given: Box<[Mutex<Given>; STRIPES]>,
}

/// A slot that was given to a key, and its value at that time.
#[derive(Default, PartialEq, Eq)]
struct Given {
    place: usize,
    value: u64,
}

impl Slots {
    /// Slots for `capacity` keys. Returns `None` if the system has no memory for them.
    pub(super) fn new(capacity: usize) -> Option<Self> {
        Some(Self {
            lines: Lines::unused(lines_for(capacity))?,
            stripes: Box::new(array::from_fn(|_| Mutex::new(()))),
            given: Box::new(array::from_fn(|_| Mutex::new(Given::default()))),
        })
    }

    /// Number of slots in use.
    pub(super) fn used(&self) -> usize {
        let lines = (0..self.lines.len()).map(|number| self.lines.get(number));
        let slots = lines.flat_map(Line::slots);
        slots.filter(|slot| slot.value.load(Acquire) != 0).count()
    }

    /// Changes the value of a key whose slot is in its first line, as [`update`](Self::update) does. Returns `None`
    /// if the slot is elsewhere.
    #[inline(always)]
    pub(super) fn swap_first(
        &self,
        key: Fingerprint,
        change: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        self.swap(self.line(key, 0).find(key)?, key, change)
    }

    /// Changes a key's value in one atomic step. `change` gets the value, 0 if the key has no slot, and returns the new
    /// value, or `None` to keep it. It is called again if another thread was faster. Returns the value before.
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
                // An insert that finds its slot charged gives the slot back, so the key may have a slot after all. Only
                // under the locks is the result of `find` certain.
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
                Ok(_) => return self.keeps(slot, key, seen, next).then_some(seen),
                // Tries again immediately: the thread that has just failed holds the cache line, so it is the next to
                // succeed.
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Returns whether the slot still belongs to the key after `next` replaced `seen`. If not, nothing was charged.
    #[inline(always)]
    fn keeps(&self, slot: Slot<'_>, key: Fingerprint, seen: u64, next: u64) -> bool {
        slot.belongs_to(key) || self.got_back(slot, key, seen, next)
    }

    /// Waits for an insert that wants the slot, and returns whether the key kept it.
    ///
    /// The insert either found the new value and gave the slot back, perhaps to take it later, without this charge. Or
    /// its own value happened to equal `seen`; then the charged tokens are returned to the new owner.
    #[cold]
    fn got_back(&self, slot: Slot<'_>, key: Fingerprint, seen: u64, next: u64) -> bool {
        let _locked = self.lock(key);
        let mine = slot.belongs_to(key);
        if !mine && *self.given(slot) == Given::of(slot, seen) {
            let _ = slot.value.compare_exchange(next, seen, AcqRel, Acquire);
        }
        mine
    }

    /// The last slot that was given to a key in the stripe of this slot. The lines of a stripe are `STRIPES` lines
    /// apart.
    fn given(&self, slot: Slot<'_>) -> MutexGuard<'_, Given> {
        let given = &self.given[slot.line() % STRIPES];
        given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a slot with this value to a key without a slot. All lines of the key are locked.
    #[inline(never)]
    fn insert(&self, key: Fingerprint, value: u64) {
        loop {
            let (slot, seen) = self.victim(key);
            let owner = slot.key.load(Acquire);
            // In this order no thread charges another key's slot: a thread that reads the new value finds the old key
            // removed.
            slot.key.store(Fingerprint::RESERVED, Release);
            if slot
                .value
                .compare_exchange(seen, value, AcqRel, Acquire)
                .is_ok()
            {
                slot.key.store(key.bits(), Release);
                *self.given(slot) = Given::of(slot, value);
                return;
            }
            // The owner was charged meanwhile, and may no longer be the least limited.
            slot.key.store(owner, Release);
        }
    }

    /// Returns the slot to take, and its value.
    ///
    /// That is an unused slot of the first line while it has two, or of the line with the most unused slots.
    /// Otherwise it is the slot of the least limited key, or of the key that was limited longest ago. So a key that is
    /// no longer limited keeps its slot while there are others, and needs no new one when it comes back.
    fn victim(&self, key: Fingerprint) -> (Slot<'_>, u64) {
        let new = |line: Line<'_>| {
            let values = line.slots().map(|slot| slot.value.load(Acquire));
            values.filter(|&value| value == 0).count()
        };
        let mut lines = CHOICES.map(|choice| self.line(key, choice));
        if new(lines[0]) < 2 {
            // The first of the lines with the most unused slots.
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

    /// The first, second or third line of a key.
    #[inline]
    fn line(&self, key: Fingerprint, choice: usize) -> Line<'_> {
        self.lines.get(key.place(choice, self.lines.len()))
    }

    /// Locks all lines of a key, always in the same order.
    fn lock(&self, key: Fingerprint) -> [Option<MutexGuard<'_, ()>>; CHOICES.len()] {
        let stripes = CHOICES.map(|choice| key.place(choice, self.lines.len()) % STRIPES);
        let mut last = None;
        CHOICES.map(|_| {
            let next = stripes.into_iter().filter(|&one| Some(one) > last).min()?;
            last = Some(next);
            let stripe = self.stripes[next].lock();
            Some(stripe.unwrap_or_else(PoisonError::into_inner))
        })
    }
}

impl Given {
    fn of(slot: Slot<'_>, value: u64) -> Self {
        let place = slot.place();
        Self { place, value }
    }
}

/// Returns the number of lines for this many keys.
///
/// There are two slots per key: at half full, three choices of four leave hardly any key without a slot, and six of
/// seven keys are in their first line. (In a simulation of 100,000 keys, one key in sixty runs has no slot; at 57 %
/// full, 0.4 keys per run. Two choices of eight at two thirds do as well in less memory, but take two cache lines per
/// key.)
fn lines_for(capacity: usize) -> usize {
    // The model has keys that contend for a single line.
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
