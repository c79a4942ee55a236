use std::{hint::black_box, sync::PoisonError};

use super::{
    fingerprint::Fingerprint,
    store::{Store, no_memory},
    sync::{Mutex, MutexGuard},
};
use crate::{
    BuildError, Decision,
    algorithm::{Arithmetic, Ask},
};

/// The most shelves: more than a machine has cores, so that two requests seldom want the same one.
const SHELVES: usize = 64;

/// Buckets that a shelf has at least, so that keys fill all shelves about evenly.
const BUCKETS: usize = 512;

/// Keys in a bucket.
const WAYS: usize = 8;

/// One policy's keys, each with a state of any kind.
///
/// A key has its place on one shelf, behind a lock that is held as long as one decision takes, and there in one of two
/// buckets. Whoever comes new clears out of both what is as good as unused, so nothing has to be cleaned up; if neither
/// has room, the least limited of the sixteen goes.
pub(super) struct Shelves<A: Arithmetic> {
    arithmetic: A,
    shelves: Box<[Mutex<Shelf<A::State>>]>,
    /// Of each shelf.
    buckets: usize,
}

/// Buckets that claim their memory as keys arrive, and are there from the first on.
struct Shelf<S>(Vec<Vec<Entry<S>>>);

struct Entry<S> {
    key: Fingerprint,
    state: S,
}

impl<A: Arithmetic> Shelves<A> {
    /// Places for `capacity` keys.
    ///
    /// # Errors
    ///
    /// When there is no memory for them.
    pub(super) fn new(arithmetic: A, capacity: usize) -> Result<Self, BuildError> {
        let buckets = buckets_for(capacity);
        let shelves = (buckets / BUCKETS).clamp(1, SHELVES);
        let mut room = Vec::<Vec<Entry<A::State>>>::new();
        room.try_reserve_exact(buckets)
            .map_err(|_| no_memory(capacity))?;
        // Only tried; but seen, or else the compiler leaves it out.
        drop(black_box(room));
        let empty = |_| Mutex::new(Shelf(Vec::new()));
        Ok(Self {
            arithmetic,
            shelves: (0..shelves).map(empty).collect(),
            buckets: buckets.div_ceil(shelves),
        })
    }

    fn lock(&self, key: Fingerprint) -> MutexGuard<'_, Shelf<A::State>> {
        let shelf = key.spread(0, self.shelves.len());
        self.shelves[shelf]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the state of a key that has no place.
    fn insert(&self, shelf: &mut Shelf<A::State>, nanos: u64, entry: Entry<A::State>) {
        let pressure = |entry: &Entry<A::State>| {
            let now = self.arithmetic.at(nanos, entry.key.bits());
            self.arithmetic.pressure(&entry.state, now)
        };
        shelf.0.resize_with(self.buckets, Vec::new);
        let [first, second] = shelf.places(entry.key);
        for place in [first, second] {
            shelf.0[place].retain(|entry| pressure(entry) > 0);
        }
        let emptier = if shelf.0[second].len() < shelf.0[first].len() {
            second
        } else {
            first
        };
        if shelf.0[emptier].len() < WAYS {
            shelf.0[emptier].push(entry);
            return;
        }
        let neighbours = [first, second]
            .into_iter()
            .flat_map(|place| (0..WAYS).map(move |way| (place, way)));
        let least = neighbours.min_by_key(|&(place, way)| pressure(&shelf.0[place][way]));
        if let Some((place, way)) = least {
            shelf.0[place][way] = entry;
        }
    }
}

impl<S> Shelf<S> {
    fn places(&self, key: Fingerprint) -> [usize; 2] {
        key.places(self.0.len())
    }

    fn find(&mut self, key: Fingerprint) -> Option<&mut S> {
        let [first, second] = self.places(key);
        let place = [first, second].into_iter().find_map(|place| {
            let way = self.0.get(place)?.iter().position(|e| e.key == key)?;
            Some((place, way))
        });
        place.map(|(place, way)| &mut self.0[place][way].state)
    }

    fn remove(&mut self, key: Fingerprint) {
        for place in self.places(key) {
            if let Some(bucket) = self.0.get_mut(place) {
                bucket.retain(|entry| entry.key != key);
            }
        }
    }
}

/// How many buckets hold so many keys.
///
/// Half as many places again as keys: at two thirds full, two choices of eight leave hardly anybody without one. (In a
/// simulation of 100,000 keys one is in 120 runs, and twenty are in each at 80 %.)
fn buckets_for(capacity: usize) -> usize {
    let places = capacity.saturating_add(capacity / 2);
    places.div_ceil(WAYS).max(1)
}

impl<A: Arithmetic> Store for Shelves<A> {
    fn charge(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let now = self.arithmetic.at(nanos, key.bits());
        let mut shelf = self.lock(key);
        if let Some(state) = shelf.find(key) {
            self.arithmetic.decide(state, now, ask, out);
            if out.granted > 0 {
                self.arithmetic.take(state, now, ask, out.granted);
            } else if !out.allowed {
                self.arithmetic.adopt(state, now, ask);
            }
            return;
        }
        let mut state = A::State::default();
        self.arithmetic.decide(&state, now, ask, out);
        if out.granted > 0 {
            self.arithmetic.take(&mut state, now, ask, out.granted);
            self.insert(&mut shelf, nanos, Entry { key, state });
        }
    }

    fn check(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let now = self.arithmetic.at(nanos, key.bits());
        match self.lock(key).find(key) {
            Some(state) => self.arithmetic.decide(state, now, ask, out),
            None => {
                let unused = A::State::default();
                self.arithmetic.decide(&unused, now, ask, out);
            }
        }
    }

    fn adopt(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>) {
        let now = self.arithmetic.at(nanos, key.bits());
        if let Some(state) = self.lock(key).find(key) {
            self.arithmetic.adopt(state, now, ask);
        }
    }

    fn settle(&self, key: Fingerprint, nanos: u64, ask: &Ask<'_>, delta: i64) {
        let now = self.arithmetic.at(nanos, key.bits());
        let mut shelf = self.lock(key);
        if let Some(state) = shelf.find(key) {
            self.arithmetic.settle(state, now, ask, delta);
            return;
        }
        let mut state = A::State::default();
        if self.arithmetic.settle(&mut state, now, ask, delta) {
            self.insert(&mut shelf, nanos, Entry { key, state });
        }
    }

    fn reset(&self, key: Fingerprint) {
        self.lock(key).remove(key);
    }

    fn len(&self) -> usize {
        let shelves = self.shelves.iter();
        let shelves = shelves.map(|shelf| shelf.lock().unwrap_or_else(PoisonError::into_inner));
        shelves
            .map(|shelf| shelf.0.iter().map(Vec::len).sum::<usize>())
            .sum()
    }
}
