mod shard;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use self::shard::PartitionShard;
use super::Budget;
use crate::BuildError;

/// Most clients have fewer destinations. 256 partitions take about 45 KB.
const DEFAULT_CAPACITY: usize = 256;
/// 2²⁰ partitions take about 180 MB. Hardly any client has more destinations.
const MAX_CAPACITY: usize = 1 << 20;
/// On average, a shard has at most this number of partitions. A look-up searches one shard for its key, and a new key
/// evicts from at most one shard.
const PER_SHARD: usize = 8;

/// A [`Budget`] per destination, so that a failing destination does not use up the tokens of the others.
///
/// Use it for one layer over several backends, keyed by the unit that fails independently: a host, a service, a shard.
/// If each backend has its own layer, give each layer its own `Budget` instead.
///
/// # How it counts
///
/// A key's own budget is called a partition. A partition has the settings and the initial tokens of the template, the
/// budget that was given to [`new`](Self::new). The number of partitions is limited by [`capacity`](Self::capacity).
/// Keys without a partition share one more budget. So at any time, all keys together have at most `capacity + 1`
/// budgets.
///
/// A partition is in use while a clone of its budget exists or a permit holds one of its tokens.
///
/// If the table of partitions is full, the look-up of a key without a partition searches one part of the table. In this
/// part, it evicts the partitions that are not in use and that meet one of these conditions:
///
/// - The partition is full, or in its initial state. If [`Budget::initial`] is below the burst, the destination loses
///   the tokens that it had saved. Its next partition starts with the initial tokens.
/// - No call was seen to change the partition's tokens for 90 s. The destination's next partition starts with the
///   initial tokens. So these evictions add at most `capacity` times the initial tokens per 90 s, over all keys. This
///   condition is for destinations that have gone away. With `per_second(0)`, and in a
///   [throttle](Budget::grpc_throttle), a partition refills only through calls. So after its destination has gone away,
///   it may never become full.
///
/// If the look-up evicts a partition, the key gets a partition of its own. Otherwise the look-up returns the shared
/// budget.
///
/// The table stores the 64-bit SipHash of a key with a random seed, and not the key. So hostile keys take at most the
/// memory of `capacity` partitions, and an attacker cannot make keys collide. Two keys with the same hash share a
/// partition; among 256 keys that happens in less than one of 10¹⁴ processes.
///
/// With [`Budget::unlimited`] as the template, every key has an unlimited budget, and there are no partitions.
///
/// # Default
///
/// A capacity of 256.
///
/// # Cost
///
/// For a key with a partition: a SipHash of the key, a load of an `arc_swap`, a search of on average at most eight
/// hashes, and the clone of an `Arc`. No lock is taken, unless another thread is changing the key's part of the
/// table.
///
/// For any other key: also a short lock, and up to a few allocations. If the table is full, the look-up also searches
/// on average at most eight partitions for some to evict.
///
/// Each partition takes about 170 bytes. Clones share the partitions; [`capacity`](Self::capacity) returns an empty
/// table.
///
/// ```
/// use tower_attempt::{Budget, Budgets};
///
/// let budgets = Budgets::new(Budget::ratio(0.2).per_second(1).burst(1)).capacity(100);
/// let budget = budgets.get("a.example");
/// budget.withdraw().unwrap().spend();
///
/// assert!(budgets.get("a.example").withdraw().is_none()); // the same budget
/// assert!(budgets.get("b.example").withdraw().is_some());
/// ```
#[derive(Clone)]
pub struct Budgets(Arc<PartitionTable>);

/// Partitions by the hashes of their keys.
///
/// # Eviction adds no tokens
///
/// A partition is evicted only while no clone of its budget exists and no permit holds one of its tokens. So no call in
/// flight can still use the evicted budget, and no key has two partitions at the same time. The evicted partition must
/// also be full or in its initial state. The partition that takes its place then has at most as many tokens. So over
/// time, a place in the table gives no more tokens than one budget, whichever keys use it.
///
/// The exception is a partition whose bucket was not seen to change for [`MAX_UNUSED`](shard::MAX_UNUSED). It may be
/// evicted although it has fewer tokens than a new partition. So per `MAX_UNUSED`, a place gives at most the initial
/// tokens in addition.
///
/// A key without a partition draws on the shared budget. If the key gets a partition later, it has drawn on two
/// budgets.
struct PartitionTable {
    template: Budget,
    /// The budget of the keys for which there is no room.
    shared: Budget,
    capacity: usize,
    hasher: RandomState,
    shards: Box<[PartitionShard]>,
    /// A thread changes shards only while it holds this lock.
    usage: Mutex<PartitionUsage>,
}

#[derive(Default)]
struct PartitionUsage {
    /// The number of partitions in all shards.
    partitions: usize,
    /// The index of the shard that the next eviction searches. The number of shards stands for index 0.
    next: usize,
}

impl Budgets {
    /// Gives each of up to 256 keys a budget with the settings of `template`.
    #[must_use]
    pub fn new(template: Budget) -> Self {
        Self::with(template, DEFAULT_CAPACITY)
    }

    /// Maximum number of [partitions](Self#how-it-counts), from 1 to 1,048,576. Keys without a partition share one more
    /// budget, which is not counted.
    ///
    /// Set the capacity to at least the number of destinations. If there are more destinations, they may evict each
    /// other's partitions or share one budget. Each eviction costs a lock and a few allocations.
    ///
    /// # Default
    ///
    /// 256.
    #[must_use]
    pub fn capacity(self, partitions: usize) -> Self {
        Self::with(self.0.template.clone(), partitions)
    }

    /// Checks the settings. The layers' `build()` calls this.
    ///
    /// # Errors
    ///
    /// Returns an error if the capacity is 0 or above 1,048,576, or if [`Budget::validate`] fails for the budget that
    /// was given to [`new`](Self::new).
    pub fn validate(&self) -> Result<(), BuildError> {
        let capacity = self.0.capacity;
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            let bound = "from 1 to 1048576 partitions";
            return Err(BuildError::new("budgets.capacity", capacity, bound));
        }
        self.0.template.validate()
    }

    /// Returns the template: the budget that was given to [`new`](Self::new). Each [partition](Self#how-it-counts) has
    /// the template's settings.
    #[must_use]
    pub fn template(&self) -> &Budget {
        &self.0.template
    }

    /// Returns the budget of `key`: its [partition](Self#how-it-counts), or the one shared budget if the key has no
    /// partition.
    ///
    /// Call this for each request, and drop the returned budget when the call ends. If the returned budget is that of a
    /// partition, the partition cannot be evicted while this budget or a clone of it exists.
    #[must_use]
    pub fn get(&self, key: &(impl Hash + ?Sized)) -> Budget {
        if self.0.template.0.is_none() {
            return Budget::unlimited();
        }
        let hash = self.0.hasher.hash_one(key);
        let found = self.0.shard(hash).find(hash);
        found.unwrap_or_else(|| self.0.admit(hash))
    }

    /// Accepts a capacity that is out of range; [`validate`](Self::validate) reports it.
    fn with(template: Budget, capacity: usize) -> Self {
        let shards = capacity.clamp(1, MAX_CAPACITY).div_ceil(PER_SHARD);
        let shards = (0..shards.next_power_of_two()).map(|_| PartitionShard::default());
        Self(Arc::new(PartitionTable {
            shared: template.fresh(),
            template,
            capacity,
            hasher: RandomState::new(),
            shards: shards.collect(),
            usage: Mutex::default(),
        }))
    }
}

impl PartitionTable {
    fn admit(&self, hash: u64) -> Budget {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
        // After `get` searched the shard, another thread may have added the partition. Or `get` found nothing because
        // another thread was changing the shard.
        if let Some(found) = self.shard(hash).find(hash) {
            return found;
        }
        if usage.partitions >= self.capacity.min(MAX_CAPACITY) {
            // Searches one shard for partitions to evict. A search of all shards could hold the lock for longer.
            let next = usage.next % self.shards.len();
            usage.next = next + 1;
            let evicted = self.shards[next].evict_idle();
            if evicted == 0 {
                return self.shared.clone();
            }
            usage.partitions -= evicted;
        }
        let budget = self.template.fresh();
        self.shard(hash).add(hash, budget.clone());
        usage.partitions += 1;
        budget
    }

    fn shard(&self, hash: u64) -> &PartitionShard {
        #[expect(clippy::cast_possible_truncation, reason = "its low bits will do")]
        let shard = hash as usize & (self.shards.len() - 1);
        &self.shards[shard]
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
impl PartitionTable {
    /// Returns the number of partitions, and checks that it is counted correctly.
    fn partitions(&self) -> usize {
        let usage = self.usage.lock().unwrap();
        let there: usize = self.shards.iter().map(PartitionShard::len).sum();
        assert_eq!(there, usage.partitions);
        there
    }

    fn is_shared(&self, budget: &Budget) -> bool {
        budget.is(&self.shared)
    }
}

impl fmt::Debug for Budgets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budgets")
            .field("template", &self.0.template)
            .field("capacity", &self.0.capacity)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
mod tests;
