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

/// Sets of slots. With four slots each there is room for 1,024 keys to be watched: as many as can be hot on one
/// instance without being all of its traffic.
const SETS: usize = 256;

const WAYS: usize = 4;

/// The bits of a tag that its quota has no part in.
const KEY_BITS: u64 = u32::MAX as u64;

/// The keys that are asked about most.
pub(super) struct Table {
    /// Under a key of its own, so that nobody outside knows who shares a set.
    hasher: RandomState,
    sets: Box<[Set]>,
}

/// The slots that a key can be in.
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

    /// 64 bits that stand for a policy, a key and its quota: never zero. The lower half is the same whatever the quota, so that all
    /// tags of a key are in one set.
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

    /// What to do without tokens, or to get more ahead of time.
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
                // What is asked for ahead was paid for already.
                account.take(slot, if ask.ahead { 0 } else { ask.cost });
                account.beside = 0;
                account.owner = account.owner.take().or_else(|| Owner::of(charge));
            }
        }
        plan
    }

    /// So many tokens of a key are taken from the store, or may be, by who does not ask for more.
    pub(super) fn take(&self, tag: u64, tokens: u64) {
        if self.slot(tag).is_none() {
            return;
        }
        let mut accounts = self.lock();
        if let Some(way) = self.slots.iter().position(|slot| slot.is(tag)) {
            accounts[way].take(&self.slots[way], tokens);
        }
    }

    /// Where the key is, or the place of one that is asked about less.
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
            // Goes on, so that an answer to the one before is not taken for one to this.
            asked: accounts[coldest].asked,
            relieved: false,
            beside: 0,
            remaining: 0,
        };
        Some(coldest)
    }

    /// Lets all tokens die, and says whose they were and how many could still have been spent.
    pub(super) fn drain(&self, now: u64) -> impl Iterator<Item = (Owner, u64)> {
        let accounts = self.lock();
        let ways = self.slots.iter().zip(accounts.iter());
        let drained = ways.filter_map(|(slot, account)| {
            let left = slot.drain(now);
            Some((account.owner.clone()?, left)).filter(|_| left > 0)
        });
        drained.collect::<SmallVec<[_; WAYS]>>().into_iter()
    }

    /// Whose answer this is, if the key is still here and nobody else is asking for it.
    fn asking(&self, accounts: &[Account; WAYS], tag: u64, id: u64) -> Option<usize> {
        let way = self.slots.iter().position(|slot| slot.is(tag))?;
        (accounts[way].asking == id).then_some(way)
    }

    /// Puts what was granted in a purse, and says until when requests without tokens are rejected. Of no effect if
    /// the key has gone: then its tokens die.
    pub(super) fn answered(&self, answered: Answered, decision: &Decision, lease: u64) -> u64 {
        let mut accounts = self.lock();
        let Some(way) = self.asking(&accounts, answered.tag, answered.id) else {
            return 0;
        };
        accounts[way].answered(&self.slots[way], answered, decision, lease)
    }

    /// There will be no answer. Others are asked for exactly, for a while.
    pub(super) fn given_up(&self, tag: u64, id: u64, again: u64) {
        let mut accounts = self.lock();
        if let Some(way) = self.asking(&accounts, tag, id) {
            accounts[way].asking = 0;
            self.slots[way].not_before.store(again, Release);
        }
    }

    /// Forgets that the store was short of a key, with whatever quota: somebody has given back.
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

/// Whether a slot is of the key that this is a tag of.
fn is_of_key(slot: &Slot, tag: u64) -> bool {
    slot.tag() & KEY_BITS == tag & KEY_BITS
}

#[cfg(all(test, not(tower_dist_ratelimit_loom)))]
mod tests;
