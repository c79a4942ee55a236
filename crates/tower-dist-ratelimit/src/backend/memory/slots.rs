use std::{
    array,
    cmp::Reverse,
    sync::{
        PoisonError,
        atomic::Ordering::{AcqRel, Acquire, Release},
    },
};

use super::{
    bucket::{Bucket, Buckets, Slot, WAYS},
    charged::Charged,
    fingerprint::Fingerprint,
    frame::Frame,
    store::{Store, no_memory},
    sync::{Mutex, MutexGuard},
};
use crate::{
    BuildError, Decision,
    algorithm::{Ask, OneNumber},
};

/// Locks for inserting. More than a machine has cores, so that two inserts seldom meet.
const STRIPES: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    64
};

/// The buckets of a key.
const CHOICES: [usize; 3] = [0, 1, 2];

/// One policy's keys, each with a state that is one number.
///
/// A key has its slot in one of three buckets, which its fingerprint names. Charging a key that has a slot is one
/// compare-and-swap on the slot's value. Slots are given out under the locks of all three, so a key has one slot and
/// a slot has one key. A slot whose value is as good as unused says the same as no slot, and is the first to be given to others.
pub(super) struct Slots<A> {
    arithmetic: A,
    buckets: Buckets,
    stripes: Box<[Mutex<()>; STRIPES]>,
    /// What each of the stripes has given out last, which only who holds it asks.
    given: Box<[Mutex<Given>; STRIPES]>,
}

/// Which slot was given to a key, and with what value.
#[derive(Default, PartialEq, Eq)]
struct Given {
    place: usize,
    value: u64,
}

impl<A: OneNumber> Store for Slots<A> {
    #[inline(always)]
    fn charge(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        *out = self.take(key, nanos, ask);
    }

    fn charge_now(&self, frame: &Frame, key: &[u8], cost: u64) -> Charged {
        let key = frame.hash(key);
        Charged::of(self.take(key, frame.now(), &Ask::own(cost)))
    }

    fn check(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let now = self.arithmetic.at(nanos, key.bits());
        let state = self.update(key, |_| None);
        self.arithmetic.decide(&state, now, ask, out);
    }

    fn settle(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, delta: i64) {
        let now = self.arithmetic.at(nanos, key.bits());
        self.update(key, |state| {
            let mut next = state;
            let changed = self.arithmetic.settle(&mut next, now, ask, delta);
            changed.then_some(next)
        });
    }

    fn reset(&self, key: Fingerprint) {
        self.update(key, |state| (state != 0).then_some(0));
    }

    fn len(&self) -> usize {
        let buckets = (0..self.buckets.len()).map(|number| self.buckets.get(number));
        let slots = buckets.flat_map(Bucket::slots);
        slots.filter(|slot| slot.value.load(Acquire) != 0).count()
    }
}

impl<A: OneNumber> Slots<A> {
    /// Slots for `capacity` keys.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub(super) fn new(arithmetic: A, capacity: usize) -> Result<Self, BuildError> {
        let buckets = Buckets::unused(buckets_for(capacity)).ok_or_else(|| no_memory(capacity))?;
        Ok(Self {
            arithmetic,
            buckets,
            stripes: Box::new(array::from_fn(|_| Mutex::new(()))),
            given: Box::new(array::from_fn(|_| Mutex::new(Given::default()))),
        })
    }

    /// Charges a key.
    #[inline(always)]
    fn take(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>) -> Decision {
        // Read as a whole beforehand: the swap lets nothing be read before it is done.
        let arithmetic = self.arithmetic;
        let now = arithmetic.at(nanos, key.bits());
        // The first bucket is where most keys are. What others need is not in the way.
        let here = self.bucket(key, 0).find(key);
        let charge = |state| charged(&arithmetic, state, now, ask);
        match here.and_then(|slot| self.swap(slot, key, charge)) {
            // Only now: the swap waits for everything that is written before.
            Some(state) => decision(&arithmetic, state, now, ask),
            None => self.take_elsewhere(key, nanos, ask),
        }
    }

    /// Charges a key wherever it is.
    #[inline(never)]
    fn take_elsewhere(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>) -> Decision {
        let now = self.arithmetic.at(nanos, key.bits());
        let state = self.update(key, |state| charged(&self.arithmetic, state, now, ask));
        decision(&self.arithmetic, state, now, ask)
    }

    /// Changes a key's value in one atomic step: `change` gets it (0 when the key has none) and says what it becomes,
    /// nothing when it stays. Starts again when somebody else was faster. Returns what it was before.
    fn update(&self, key: Fingerprint, mut change: impl FnMut(u64) -> Option<u64>) -> u64 {
        loop {
            if let Some(slot) = self.find(key) {
                if let Some(seen) = self.swap(slot, key, &mut change) {
                    return seen;
                }
            } else {
                // Perhaps not absent: an insert that finds its slot charged after all gives it back. Only under the
                // locks is a key that is not found not there.
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

    /// Changes the value of the key's slot. None if it is not the key's any more.
    #[inline]
    fn swap(
        &self,
        slot: Slot<'_>,
        key: Fingerprint,
        mut change: impl FnMut(u64) -> Option<u64>,
    ) -> Option<u64> {
        let mut seen = slot.value.load(Acquire);
        // A value that a new owner has written comes after the key was taken away, so this looks after the value.
        while slot.belongs_to(key) {
            let Some(next) = change(seen) else {
                return Some(seen);
            };
            match slot.value.compare_exchange(seen, next, AcqRel, Acquire) {
                Ok(_) => return self.keeps(slot, key, seen, next).then_some(seen),
                // At once: who has just failed has the cache line, and so is the next to succeed.
                Err(now) => seen = now,
            }
        }
        None
    }

    /// Whether the slot is still the key's, now that `seen` was replaced by `next`; if not, nothing was charged.
    #[inline]
    fn keeps(&self, slot: Slot<'_>, key: Fingerprint, seen: u64, next: u64) -> bool {
        slot.belongs_to(key) || self.got_back(slot, key, seen, next)
    }

    /// An insert has its eye on the slot. Once it is through: either it has found the new value and given the slot back,
    /// perhaps to take it after all, of which the new owner knows nothing; or its own value happened to be just the one that was
    /// seen, and what was taken goes back to its owner.
    #[cold]
    fn got_back(&self, slot: Slot<'_>, key: Fingerprint, seen: u64, next: u64) -> bool {
        let _locked = self.lock(key);
        let mine = slot.belongs_to(key);
        if !mine && *self.given(slot) == Given::of(slot, seen) {
            let _ = slot.value.compare_exchange(next, seen, AcqRel, Acquire);
        }
        mine
    }

    /// What was last given out of the stripe that this slot belongs to: a bucket is a line, and each stripe's are as far apart as
    /// there are stripes.
    fn given(&self, slot: Slot<'_>) -> MutexGuard<'_, Given> {
        let given = &self.given[slot.line() % STRIPES];
        given.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives the key, which has none, a slot with this value. All its buckets are locked.
    #[inline(never)]
    fn insert(&self, key: Fingerprint, value: u64) {
        loop {
            let (slot, seen) = self.victim(key);
            let owner = slot.key.load(Acquire);
            // In this order nobody charges a slot of another's: who reads the new value finds the old key gone.
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
            // The owner was charged in the meantime, and may not be the least limited any more.
            slot.key.store(owner, Release);
        }
    }

    /// The slot to take, and its value: one of the first bucket that nobody has had, while there are two, or of the bucket
    /// that has most of them; else the least limited of all, or who was limited longest ago. So a key that is not limited any more
    /// keeps its slot while there are others, and need not be given one when it comes back.
    fn victim(&self, key: Fingerprint) -> (Slot<'_>, u64) {
        let new = |bucket: Bucket<'_>| {
            let values = bucket.slots().map(|slot| slot.value.load(Acquire));
            values.filter(|&value| value == 0).count()
        };
        let mut buckets = CHOICES.map(|choice| self.bucket(key, choice));
        if new(buckets[0]) < 2 {
            buckets.sort_by_key(|&bucket| Reverse(new(bucket)));
        }
        let slots = buckets.into_iter().flat_map(Bucket::slots);
        slots
            .map(|slot| (slot, slot.value.load(Acquire)))
            .min_by_key(|&(_, value)| value)
            .unwrap_or_else(|| unreachable!("a bucket has slots"))
    }

    #[inline]
    fn find(&self, key: Fingerprint) -> Option<Slot<'_>> {
        let mut buckets = CHOICES.into_iter().map(|choice| self.bucket(key, choice));
        buckets.find_map(|bucket| bucket.find(key))
    }

    /// The first, second or third bucket of a key.
    #[inline]
    fn bucket(&self, key: Fingerprint, choice: usize) -> Bucket<'_> {
        self.buckets.get(key.place(choice, self.buckets.len()))
    }

    /// Locks all buckets of a key, in one fixed order.
    fn lock(&self, key: Fingerprint) -> [Option<MutexGuard<'_, ()>>; CHOICES.len()] {
        let mut stripes =
            CHOICES.map(|choice| Some(key.place(choice, self.buckets.len()) % STRIPES));
        stripes.sort_unstable();
        for later in (1..stripes.len()).rev() {
            if stripes[later] == stripes[later - 1] {
                stripes[later] = None;
            }
        }
        stripes.map(|stripe| {
            let stripe = &self.stripes[stripe?];
            Some(stripe.lock().unwrap_or_else(PoisonError::into_inner))
        })
    }
}

/// What a charge makes of a value; nothing if none is granted.
#[inline(always)]
fn charged<A: OneNumber>(arithmetic: &A, state: u64, now: A::Moment, ask: &Ask<'_>) -> Option<u64> {
    let granted = arithmetic.granted(state, now, ask);
    (granted > 0).then(|| {
        let mut next = state;
        arithmetic.take(&mut next, now, ask, granted);
        next
    })
}

#[inline(always)]
fn decision<A: OneNumber>(arithmetic: &A, state: u64, now: A::Moment, ask: &Ask<'_>) -> Decision {
    let mut out = Decision::default();
    arithmetic.decide(&state, now, ask, &mut out);
    out
}

impl Given {
    fn of(slot: Slot<'_>, value: u64) -> Self {
        let place = slot.place();
        Self { place, value }
    }
}

/// How many buckets hold so many keys.
///
/// Twice as many slots as keys: at half full, three choices of four leave hardly anybody without one, and six of seven in the
/// first. (In a simulation of 100,000 keys one is in sixty runs, and 0.4 of a run at 57 %. Two choices of eight, at two
/// thirds, do as well in less memory, but take two lines of it for each key.)
fn buckets_for(capacity: usize) -> usize {
    // Of a single bucket, keys that meet are to be modelled.
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
