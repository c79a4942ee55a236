use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::MAX_CAPACITY;
use super::shard::Shard;
use crate::Budget;

/// Partitions per shard of a full table: what a look-up walks over, and what is looked through for
/// one that can be forgotten.
const PER_SHARD: usize = 8;

/// Partitions by the hashes of their keys.
///
/// # Forgetting gives nobody more
///
/// A partition goes only if nobody holds a clone or a permit of it, so nothing in flight can spend from,
/// deposit into or give back to what was forgotten, and the partition that its key gets next is the
/// only one of that key. And it goes only if it is full, or as it was at first, so the partition
/// that takes its place, for the same key or another, has no more tokens than it had. A place in the
/// table is therefore, whatever keys it serves in turn, never more than one budget.
///
/// The exception is a partition that was not used for [`MAX_UNUSED`](super::shard::MAX_UNUSED). It may go
/// with fewer tokens than a fresh one has, so that a place gives at most the initial tokens more in that time.
///
/// A key draws on the partition that is shared by those without room as long as it has no other; with
/// its own later, on two budgets in all.
pub(super) struct Table {
    pub(super) template: Budget,
    /// For keys for which there is no room.
    shared: Budget,
    pub(super) capacity: usize,
    hasher: RandomState,
    shards: Box<[Shard]>,
    /// Whoever holds this may change shards.
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    /// Partitions in all shards.
    partitions: usize,
    /// The shard to look through next for partitions that can be forgotten.
    next: usize,
}

impl Table {
    /// A capacity out of range is brought into it; `Budgets::validate` reports it.
    pub(super) fn new(template: Budget, capacity: usize) -> Self {
        let shards = capacity.clamp(1, MAX_CAPACITY).div_ceil(PER_SHARD);
        let shards = (0..shards.next_power_of_two()).map(|_| Shard::default());
        Self {
            shared: template.fresh(),
            template,
            capacity,
            hasher: RandomState::new(),
            shards: shards.collect(),
            usage: Mutex::default(),
        }
    }

    pub(super) fn get(&self, key: &(impl Hash + ?Sized)) -> Budget {
        if !self.template.counts() {
            return self.template.clone();
        }
        let hash = self.hasher.hash_one(key);
        let found = self.shard(hash).find(hash);
        found.unwrap_or_else(|| self.admit(hash))
    }

    fn admit(&self, hash: u64) -> Budget {
        let mut usage = self.usage();
        // Another thread was faster, or changed the shard.
        if let Some(found) = self.shard(hash).find(hash) {
            return found;
        }
        if usage.partitions >= self.capacity.min(MAX_CAPACITY) {
            // One shard for each key that comes in vain: the whole table would hold up the others.
            let next = usage.next % self.shards.len();
            usage.next = next + 1;
            let forgotten = self.shards[next].forget_idle();
            if forgotten == 0 {
                return self.shared.clone();
            }
            usage.partitions -= forgotten;
        }
        let budget = self.template.fresh();
        self.shard(hash).add(hash, budget.clone());
        usage.partitions += 1;
        budget
    }

    fn shard(&self, hash: u64) -> &Shard {
        #[expect(clippy::cast_possible_truncation, reason = "its low bits will do")]
        let shard = hash as usize & (self.shards.len() - 1);
        &self.shards[shard]
    }

    fn usage(&self) -> MutexGuard<'_, Usage> {
        self.usage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
impl Table {
    /// How many partitions there are, as counted and as they are.
    pub(super) fn partitions(&self) -> usize {
        let usage = self.usage();
        let there: usize = self.shards.iter().map(Shard::len).sum();
        assert_eq!(there, usage.partitions);
        there
    }

    pub(super) fn is_shared(&self, budget: &Budget) -> bool {
        budget.is(&self.shared)
    }
}
