use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tokio::time::Instant;

use crate::Budget;

/// How long a partition stays without use. hyper-util's and reqwest's pools keep an idle connection as long.
pub(super) const MAX_UNUSED: Duration = Duration::from_secs(90);

/// The partitions of the keys whose hashes end alike: about eight when the table is full.
///
/// Any thread may look for a key at any time. One thread at a time may change it.
#[derive(Default)]
pub(super) struct Shard(ArcSwapOption<Vec<Partition>>);

#[derive(Clone)]
struct Partition {
    hash: u64,
    budget: Budget,
    /// The budget's word when the shard was last looked through.
    word: Option<u64>,
    /// When that word was first seen.
    since: Instant,
}

impl Partition {
    /// Whether it is not in use, and either a fresh one gives no more or no call has used it for a while.
    fn is_forgettable(&mut self, now: Instant) -> bool {
        // In use if it has another owner: a clone, a permit, or a thread that looks for it.
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

impl Shard {
    /// The budget of `hash`. May miss one while the shard changes.
    pub(super) fn find(&self, hash: u64) -> Option<Budget> {
        let partitions = self.0.load();
        let mut partitions = partitions.as_deref()?.iter();
        let found = partitions.find(|partition| partition.hash == hash)?;
        Some(found.budget.clone())
    }

    /// Adds the budget of `hash`, which has none.
    pub(super) fn add(&self, hash: u64, budget: Budget) {
        let partition = Partition {
            hash,
            word: budget.0.as_ref().map(|limited| limited.bucket.load()),
            budget,
            since: Instant::now(),
        };
        self.change(|partitions| partitions.push(partition));
    }

    /// Forgets partitions that a fresh one can replace. Returns how many.
    pub(super) fn forget_idle(&self) -> usize {
        let now = Instant::now();
        self.change(|partitions| {
            let before = partitions.len();
            partitions.retain_mut(|partition| !partition.is_forgettable(now));
            before - partitions.len()
        })
    }

    /// The partitions are taken out while they change, so that from then on nobody can get at them:
    /// of a budget that has no other owner then, no clone can turn up later. A thread that still looks
    /// through them, or has cloned one, is such an owner.
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
impl Shard {
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
    fn nothing_is_forgotten_under_the_eyes_of_a_thread_that_looks_for_it() {
        let shard = Shard::default();
        shard.add(1, Budget::ratio(0.0));
        let looking = shard.0.load();
        assert_eq!(shard.forget_idle(), 0);
        let found = looking.as_ref().unwrap()[0].budget.clone();
        drop(looking);
        assert_eq!(shard.forget_idle(), 0);
        assert!(shard.find(1).unwrap().is(&found));
        drop(found);
        assert_eq!(shard.forget_idle(), 1);
        assert!(shard.find(1).is_none());
    }
}
