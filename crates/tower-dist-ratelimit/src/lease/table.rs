use std::{
    array,
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::Ordering::{Relaxed, Release},
    },
};

use smallvec::SmallVec;

use super::{
    account::{Account, Answered, Ask, Plan},
    demand::Demand,
    owner::Owner,
    share::{HOT, Shortage},
    slot::Slot,
};
use crate::{Decision, Quota, backend::Charge};

/// With four slots each, the table tracks 1,024 keys: about as many as can be hot on one instance.
const SETS: usize = 256;

const WAYS: usize = 4;

/// The bits of a tag that do not depend on the quota.
const KEY_BITS: u64 = u32::MAX as u64;

/// The most frequently requested keys.
pub(super) struct Table {
    /// Randomly keyed, so that clients cannot choose keys that share a set.
    hasher: RandomState,
    sets: Box<[Set]>,
}

/// The slots that a key can occupy.
pub(super) struct Set {
    slots: [Slot; WAYS],
    accounts: Mutex<[Account; WAYS]>,
}

impl Table {
    pub(super) fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            sets: (0..SETS).map(|_| Set::new()).collect(),
        }
    }

    /// Returns a nonzero 64-bit hash of a policy, a key and its quota. The lower half does not depend on the
    /// quota, so all tags of a key are in one set.
    #[inline]
    pub(super) fn tag(&self, charge: &Charge<'_>) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(charge.policy.number());
        hasher.write(charge.key);
        let quota = charge.quota.map_or(0, |quota| self.quota(quota));
        (hasher.finish() ^ (quota & !KEY_BITS)).max(1)
    }

    fn quota(&self, quota: Quota) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u64(quota.limit());
        hasher.write_u128(quota.window().as_nanos());
        hasher.write_u64(quota.burst_size());
        hasher.finish()
    }

    pub(super) fn sets(&self) -> &[Set] {
        &self.sets
    }

    #[inline]
    pub(super) fn set(&self, tag: u64) -> &Set {
        let number = usize::try_from(tag % SETS as u64).unwrap_or_default();
        &self.sets[number]
    }
}

impl Set {
    fn new() -> Self {
        Self {
            slots: array::from_fn(|_| Slot::new()),
            accounts: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn slot(&self, tag: u64) -> Option<&Slot> {
        self.slots.iter().find(|slot| slot.is(tag))
    }

    fn lock(&self) -> MutexGuard<'_, [Account; WAYS]> {
        self.accounts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Decides how to handle a request without tokens, or whether to refill in the background.
    pub(super) fn plan(&self, ask: Ask, charge: &Charge<'_>, lease: u64) -> Plan {
        let mut accounts = self.lock();
        let Some(way) = self.way(&mut accounts, ask.tag, ask.now, lease) else {
            return Plan::Exact;
        };
        let (slot, account) = (&self.slots[way], &mut accounts[way]);
        let plan = account.plan(slot, ask, lease);
        match plan {
            Plan::Exact if !ask.ahead => account.take(slot, ask.cost),
            Plan::Exact | Plan::Reject(_) => {}
            Plan::Ask { .. } => {
                // The request that starts a background refill was paid for from the lease.
                account.take(slot, if ask.ahead { 0 } else { ask.cost });
                account.beside = 0;
                account.owner = account.owner.take().or_else(|| Owner::of(charge));
            }
        }
        plan
    }

    /// Records tokens that the backend charges, or may charge, outside of a refill.
    pub(super) fn take(&self, tag: u64, tokens: u64) {
        if self.slot(tag).is_none() {
            return;
        }
        let mut accounts = self.lock();
        if let Some(way) = self.slots.iter().position(|slot| slot.is(tag)) {
            accounts[way].take(&self.slots[way], tokens);
        }
    }

    /// Returns the slot of the key. A new key takes the slot with the lowest demand, unless that slot is
    /// hot: then the key gets none.
    fn way(&self, accounts: &mut [Account; WAYS], tag: u64, now: u64, lease: u64) -> Option<usize> {
        if let Some(way) = self.slots.iter().position(|slot| slot.is(tag)) {
            return Some(way);
        }
        let demand = |way: usize| {
            let seen = self.slots[way].seen.load(Relaxed);
            let demand = accounts[way].demand.seen(seen, now, lease);
            demand.per_lease()
        };
        let (coldest, demand) = (0..WAYS)
            .map(|way| (way, demand(way)))
            .min_by_key(|&(_, demand)| demand)?;
        if demand >= HOT {
            return None;
        }
        self.slots[coldest].give_to(tag);
        self.slots[coldest].seen.store(1, Relaxed);
        accounts[coldest] = Account {
            owner: None,
            demand: Demand::begin(now),
            shortage: Shortage::default(),
            asking: 0,
            // Ids keep counting, so that a late answer for the evicted key is not booked here.
            asked: accounts[coldest].asked,
            relieved: false,
            beside: 0,
            remaining: 0,
        };
        Some(coldest)
    }

    /// Discards all tokens, and returns the unexpired tokens per owner.
    pub(super) fn drain(&self, now: u64) -> impl Iterator<Item = (Owner, u64)> {
        let accounts = self.lock();
        let ways = self.slots.iter().zip(accounts.iter());
        let drained = ways.filter_map(|(slot, account)| {
            let left = slot.drain(now);
            Some((account.owner.clone()?, left)).filter(|_| left > 0)
        });
        drained.collect::<SmallVec<[_; WAYS]>>().into_iter()
    }

    /// Returns the key's slot, if this refill is still in flight there.
    fn asking(&self, accounts: &[Account; WAYS], tag: u64, id: u64) -> Option<usize> {
        let way = self.slots.iter().position(|slot| slot.is(tag))?;
        (accounts[way].asking == id).then_some(way)
    }

    /// Stores the granted tokens in a purse. Returns the time until which requests without tokens are
    /// rejected, or 0. If the key was evicted, discards the tokens.
    pub(super) fn answered(&self, answered: Answered, decision: &Decision, lease: u64) -> u64 {
        let mut accounts = self.lock();
        let Some(way) = self.asking(&accounts, answered.tag, answered.id) else {
            return 0;
        };
        accounts[way].answered(&self.slots[way], answered, decision, lease)
    }

    /// Ends a refill without an answer. Until `again`, requests without tokens go to the backend one by one.
    pub(super) fn given_up(&self, tag: u64, id: u64, again: u64) {
        let mut accounts = self.lock();
        if let Some(way) = self.asking(&accounts, tag, id) {
            accounts[way].asking = 0;
            self.slots[way].not_before.store(again, Release);
        }
    }

    /// Clears the shortage of a key under every quota, because tokens were returned.
    pub(super) fn relieve(&self, tag: u64) {
        if !self.slots.iter().any(|slot| is_of_key(slot, tag)) {
            return;
        }
        let mut accounts = self.lock();
        let ways = self.slots.iter().zip(accounts.iter_mut());
        for (slot, account) in ways.filter(|(slot, _)| is_of_key(slot, tag)) {
            account.shortage = Shortage::default();
            account.relieved = true;
            slot.reject_until.store(0, Relaxed);
            if account.asking == 0 {
                slot.not_before.store(0, Relaxed);
            }
        }
    }
}

/// Returns whether the slot belongs to the key of this tag, under any quota.
fn is_of_key(slot: &Slot, tag: u64) -> bool {
    slot.tag() & KEY_BITS == tag & KEY_BITS
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
