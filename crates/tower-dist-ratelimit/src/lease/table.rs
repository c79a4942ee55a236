use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{Mutex, MutexGuard, PoisonError, atomic::Ordering::Relaxed},
};

use super::{
    demand::{Claim, HOT},
    entry::{KeyState, LeaseEntry, Plan},
};
use crate::backend::{Charge, OwnedCharge};

/// Number of sets of four entries. The table tracks up to 1,024 keys.
const SETS: usize = 256;

const WAYS: usize = 4;

/// The bits of a [tag](LeaseTable::tag) that do not depend on the quota.
const KEY_BITS: u64 = u32::MAX as u64;

/// A table of requested keys, organized as a set-associative cache.
pub(super) struct LeaseTable {
    /// Randomly keyed, so that clients cannot choose keys that share an entry.
    hasher: RandomState,
    pub(super) sets: Box<[EntrySet]>,
}

/// One set of the table: the four entries that a key can occupy.
#[derive(Default)]
pub(super) struct EntrySet {
    entries: [LeaseEntry; WAYS],
    states: Mutex<[KeyState; WAYS]>,
}

impl LeaseTable {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            sets: (0..SETS).map(|_| EntrySet::default()).collect(),
        }
    }

    /// Returns a nonzero 64-bit hash of a charge's policy, key and quota. The lower half does not depend on the
    /// quota, so a key has the same set under every quota.
    #[inline]
    pub(super) fn tag(&self, charge: &Charge<'_>) -> u64 {
        let key = self.hasher.hash_one((charge.policy, charge.key));
        let quota = charge.quota.map_or(0, |quota| self.hasher.hash_one(quota));
        (key ^ (quota & !KEY_BITS)).max(1)
    }

    #[inline]
    pub(super) fn ways(&self, tag: u64) -> &EntrySet {
        let number = usize::try_from(tag % SETS as u64).unwrap_or_default();
        &self.sets[number]
    }
}

impl EntrySet {
    #[inline]
    pub(super) fn entry(&self, tag: u64) -> Option<&LeaseEntry> {
        self.entries.iter().find(|entry| entry.tag() == tag)
    }

    fn lock(&self) -> MutexGuard<'_, [KeyState; WAYS]> {
        self.states.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn way(&self, tag: u64) -> Option<usize> {
        self.entries.iter().position(|entry| entry.tag() == tag)
    }

    /// Decides how to handle a request that finds too few leased tokens, or whether to refill in the background.
    pub(super) fn plan(&self, claim: Claim, charge: &Charge<'_>, lease: u64) -> Plan {
        let mut states = self.lock();
        let way = self.way(claim.tag);
        let Some(way) = way.or_else(|| self.admit(&mut states, claim, lease)) else {
            return Plan::Exact;
        };
        let (entry, state) = (&self.entries[way], &mut states[way]);
        let plan = state.plan(entry, claim, lease);
        if let Plan::Refill(_) = plan {
            let is_short = charge.key.len() <= OwnedCharge::LONGEST_KEY;
            let owner = || is_short.then(|| OwnedCharge::of(charge));
            state.owner = state.owner.take().or_else(owner);
        }
        plan
    }

    /// Gives a new key the entry with the lowest demand, unless that entry is hot.
    fn admit(&self, states: &mut [KeyState; WAYS], claim: Claim, lease: u64) -> Option<usize> {
        let demand = |way: usize| {
            let seen = self.entries[way].seen.load(Relaxed);
            let demand = states[way].demand.add(seen, claim.now, lease);
            demand.per_lease()
        };
        let coldest = (0..WAYS).min_by_key(|&way| demand(way))?;
        if demand(coldest) >= HOT {
            return None;
        }
        self.entries[coldest].give_to(claim.tag);
        // The new key continues the numbering of the entry's refills. So if the evicted key returns to this entry, a
        // late answer to an earlier refill does not have the id of the refill in flight, and is ignored.
        states[coldest] = KeyState::new(claim.now, states[coldest].last_id);
        Some(coldest)
    }

    /// Changes the state of a key, if it has an entry.
    pub(super) fn change<T>(
        &self,
        tag: u64,
        change: impl FnOnce(&LeaseEntry, &mut KeyState) -> T,
    ) -> Option<T> {
        self.way(tag)?;
        let mut states = self.lock();
        let way = self.way(tag)?;
        Some(change(&self.entries[way], &mut states[way]))
    }

    /// Clears the shortage of a key under every quota.
    pub(super) fn relieve(&self, tag: u64) {
        let is_of_key = |entry: &LeaseEntry| entry.tag() & KEY_BITS == tag & KEY_BITS;
        if !self.entries.iter().any(is_of_key) {
            return;
        }
        let mut states = self.lock();
        let ways = self.entries.iter().zip(&mut *states);
        for (entry, state) in ways.filter(|(entry, _)| is_of_key(entry)) {
            state.relieve(entry);
        }
    }

    /// Discards all leased tokens of the set. Returns the number of unexpired ones for each [owner](KeyState::owner)
    /// that has any.
    pub(super) fn drain(&self, now: u64) -> Vec<(OwnedCharge, u64)> {
        let states = self.lock();
        let ways = self.entries.iter().zip(&*states);
        let drained = ways.filter_map(|(entry, state)| {
            let tokens = entry.drain(now);
            Some((state.owner.clone()?, tokens)).filter(|_| tokens > 0)
        });
        drained.collect()
    }
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
