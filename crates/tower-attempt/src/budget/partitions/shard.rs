use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::Budget;

/// A partition that is not in use may be evicted once its bucket was not seen to change for this time. The connection
/// pools of hyper-util and reqwest have the same default idle timeout.
pub(super) const MAX_UNUSED: Duration = Duration::from_secs(90);

/// The partitions of the keys whose hashes have the same low bits: on average at most eight.
///
/// Any thread may search a shard at any time. One thread at a time may change it.
#[derive(Default)]
pub(super) struct PartitionShard(ArcSwapOption<Vec<Partition>>);

#[derive(Clone)]
struct Partition {
    hash: u64,
    budget: Budget,
    /// The bucket's word when the partition was added, or when a search for partitions to evict last read the word.
    word: Option<u64>,
    /// The time at which `word` got its present value.
    since: Instant,
}

impl Partition {
    /// Whether the partition may be evicted. It must not be in use. Its bucket must be full, or have its initial word,
    /// or not have been seen to change for [`MAX_UNUSED`].
    fn may_evict(&mut self, now: Instant) -> bool {
        // The partition is in use if its budget has another owner: a clone, a permit with a token, or a running search.
        let Some(limited) = self.budget.0.as_mut().and_then(Arc::get_mut) else {
            return false;
        };
        let word = Some(limited.bucket.load());
        if word != self.word {
            (self.word, self.since) = (word, now);
        }
        limited.is_idle() || now.saturating_duration_since(self.since) >= MAX_UNUSED
    }
}

impl PartitionShard {
    /// Finds the budget of `hash`. May return `None` while another thread changes the shard.
    pub(super) fn find(&self, hash: u64) -> Option<Budget> {
        let partitions = self.0.load();
        let mut partitions = partitions.as_deref()?.iter();
        let found = partitions.find(|partition| partition.hash == hash)?;
        Some(found.budget.clone())
    }

    /// Adds a budget for `hash`, which must not have one.
    pub(super) fn add(&self, hash: u64, budget: Budget) {
        let partition = Partition {
            hash,
            word: budget.0.as_ref().map(|limited| limited.bucket.load()),
            budget,
            since: Instant::now(),
        };
        self.change(|partitions| partitions.push(partition));
    }

    /// Evicts the partitions that [may be evicted](Partition::may_evict). Returns their number.
    pub(super) fn evict_idle(&self) -> usize {
        let now = Instant::now();
        self.change(|partitions| {
            let before = partitions.len();
            partitions.retain_mut(|partition| !partition.may_evict(now));
            before - partitions.len()
        })
    }

    /// Takes the partitions out of the shard while `change` runs, so that no new search can find them. Once a budget
    /// has no other owner, no thread can clone it until `change` returns. An earlier search that still runs counts as
    /// another owner, and so does a clone of the budget.
    fn change<T>(&self, change: impl FnOnce(&mut Vec<Partition>) -> T) -> T {
        let partitions = self.0.swap(None);
        let mut partitions = partitions.map(Arc::unwrap_or_clone).unwrap_or_default();
        let result = change(&mut partitions);
        self.0.store(Some(Arc::new(partitions)));
        result
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
impl PartitionShard {
    pub(super) fn len(&self) -> usize {
        let partitions = self.0.load();
        partitions.as_ref().map_or(0, |partitions| partitions.len())
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
mod tests {
    use super::*;

    #[test]
    fn a_partition_that_a_thread_is_searching_is_not_evicted() {
        let shard = PartitionShard::default();
        shard.add(1, Budget::ratio(0.0));
        let searching = shard.0.load();
        assert_eq!(shard.evict_idle(), 0);
        let found = searching.as_ref().unwrap()[0].budget.clone();
        drop(searching);
        assert_eq!(shard.evict_idle(), 0);
        assert!(shard.find(1).unwrap().is(&found));
        drop(found);
        assert_eq!(shard.evict_idle(), 1);
        assert!(shard.find(1).is_none());
    }
}
