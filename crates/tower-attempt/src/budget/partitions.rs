mod shard;
mod table;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use self::table::Table;
use super::Budget;
use crate::BuildError;

/// More destinations than most clients have; about 32 KiB when all are in use.
const DEFAULT_CAPACITY: usize = 256;
/// About 110 MiB when all are in use: beyond it, keys are hardly destinations.
const MAX_CAPACITY: usize = 1 << 20;

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

impl Budgets {
    /// A budget with the settings of `template` for each of up to 256 keys.
    #[must_use]
    pub fn new(template: Budget) -> Self {
        Self(Arc::new(Table::new(template, DEFAULT_CAPACITY)))
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
        Self(Arc::new(Table::new(self.0.template.clone(), partitions)))
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
        self.0.get(key)
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
