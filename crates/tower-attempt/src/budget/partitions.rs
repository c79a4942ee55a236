mod shard;

use std::fmt;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::{Arc, Mutex, PoisonError};

use self::shard::Shard;
use super::Budget;
use crate::BuildError;

/// More destinations than most clients have. 256 partitions in use take about 32 KiB.
const DEFAULT_CAPACITY: usize = 256;
/// About 110 MiB when all partitions are in use. More keys than that are hardly destinations.
const MAX_CAPACITY: usize = 1 << 20;
/// Partitions per shard of a full table. A look-up searches one shard, and a new key makes room in one shard.
const PER_SHARD: usize = 8;

/// A [`Budget`] per destination: one that fails does not use up what is there for the others.
///
/// For one layer over several backends, keyed by what may fail by itself: a host, a service, a shard. A
/// layer per backend does better with a `Budget` per layer.
///
/// # How it counts
///
/// Each key has a budget of its own, a partition, with the settings of the template and as full as
/// that one starts. There are at most [`capacity`](Self::capacity) of them. Keys for which there is no
/// room share one more, so that all keys together never get more than `capacity + 1` budgets do,
/// however many keys there are and however they come and go.
///
/// When there is no room, the table forgets partitions of which no clone and no permit is out, and which
/// meet one of these conditions:
///
/// - They are full again, or as they were at first. That makes no difference to a budget that starts full.
///   One that starts with less than its burst ([`Budget::initial`]) starts with that again, so tokens
///   saved up beyond it are lost.
/// - No call took, returned or deposited a token for 90 s. With `per_second(0)`, or a
///   [throttle](Budget::grpc_throttle), only calls fill a partition up, so that a destination that is gone
///   would otherwise keep its partition for ever. A destination that comes back later starts anew: all keys
///   together get at most `capacity` times the initial tokens more per 90 s.
///
/// Keys are not kept, only their 64-bit SipHash with a random key, so that hostile keys cost no
/// memory and can't be made to collide. Two keys with one hash share a partition; among 256 keys
/// that happens once in 10¹⁴ processes.
///
/// [`Budget::unlimited`] keeps no count, so as a template it needs no partitions and gets none.
///
/// # Default
///
/// A capacity of 256.
///
/// # Cost
///
/// For a key that has a partition: a SipHash of the key, a load of an `arc_swap`, a walk over about
/// eight hashes, and the clone of an `Arc`; no lock, unless one of those eight is just added or
/// forgotten. For any other key a short lock: it looks through about eight partitions if there is no
/// room, and allocates if there is. A partition in use takes about 100 bytes.
///
/// Clones share the partitions; a setter makes new ones.
///
/// ```
/// use tower_attempt::{Budget, Budgets};
///
/// let budgets = Budgets::new(Budget::ratio(0.2).per_second(1).burst(1)).capacity(100);
/// let budget = budgets.get("a.example");
/// budget.withdraw().unwrap().spend();
///
/// assert!(budgets.get("a.example").withdraw().is_none()); // the same one
/// assert!(budgets.get("b.example").withdraw().is_some());
/// ```
#[derive(Clone)]
pub struct Budgets(Arc<Table>);

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
/// The exception is a partition that was not used for [`MAX_UNUSED`](shard::MAX_UNUSED). It may go
/// with fewer tokens than a fresh one has, so that a place gives at most the initial tokens more in that time.
///
/// A key draws on the partition that is shared by those without room as long as it has no other; with
/// its own later, on two budgets in all.
struct Table {
    template: Budget,
    /// The budget of the keys for which there is no room.
    shared: Budget,
    capacity: usize,
    hasher: RandomState,
    shards: Box<[Shard]>,
    /// A thread changes shards only while it holds this lock.
    usage: Mutex<Usage>,
}

#[derive(Default)]
struct Usage {
    /// The number of partitions in all shards.
    partitions: usize,
    /// The shard in which the next new key makes room.
    next: usize,
}

impl Budgets {
    /// A budget with the settings of `template` for each of up to 256 keys.
    #[must_use]
    pub fn new(template: Budget) -> Self {
        Self::with(template, DEFAULT_CAPACITY)
    }

    /// The most partitions that there are at a time, from 1 to 1,048,576; the one that the other keys
    /// share comes on top.
    ///
    /// More than there are destinations: where more are in use than there is room for, calls take
    /// turns in having a partition, at the price of a lock and an allocation each.
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
    /// Those of the template, see [`Budget::validate`], and a capacity of 0 or above 1,048,576.
    pub fn validate(&self) -> Result<(), BuildError> {
        let capacity = self.0.capacity;
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            let bound = "from 1 to 1048576 partitions";
            return Err(BuildError::new("budgets.capacity", capacity, bound));
        }
        self.0.template.validate()
    }

    /// The budget whose settings each partition has.
    #[must_use]
    pub fn template(&self) -> &Budget {
        &self.0.template
    }

    /// The budget of `key`.
    ///
    /// Take it for each call anew: as long as a clone is out, its partition stays.
    #[must_use]
    pub fn get(&self, key: &(impl Hash + ?Sized)) -> Budget {
        if self.0.template.0.is_none() {
            return Budget::unlimited();
        }
        let hash = self.0.hasher.hash_one(key);
        let found = self.0.shard(hash).find(hash);
        found.unwrap_or_else(|| self.0.admit(hash))
    }

    /// Brings a capacity out of range into it; [`validate`](Self::validate) reports it.
    fn with(template: Budget, capacity: usize) -> Self {
        let shards = capacity.clamp(1, MAX_CAPACITY).div_ceil(PER_SHARD);
        let shards = (0..shards.next_power_of_two()).map(|_| Shard::default());
        Self(Arc::new(Table {
            shared: template.fresh(),
            template,
            capacity,
            hasher: RandomState::new(),
            shards: shards.collect(),
            usage: Mutex::default(),
        }))
    }
}

impl Table {
    fn admit(&self, hash: u64) -> Budget {
        let mut usage = self.usage.lock().unwrap_or_else(PoisonError::into_inner);
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
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
impl Table {
    /// How many partitions there are, as counted and as they are.
    fn partitions(&self) -> usize {
        let usage = self.usage.lock().unwrap();
        let there: usize = self.shards.iter().map(Shard::len).sum();
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
