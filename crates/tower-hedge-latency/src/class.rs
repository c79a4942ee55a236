//! Classes of requests, each with its own latencies.

use std::collections::HashMap;
use std::fmt::Display;
use std::hash::{BuildHasher, Hash, RandomState};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tower_attempt::PerKey;

use crate::estimator::{Estimator, QuantileTarget};
use crate::guard::Guard;
use crate::trigger::DelayBounds;

/// Maximum number of classes with a key. A class takes about 16 KB, so 256 classes take about 4 MB.
const MAX_CLASSES: usize = 256;

/// The learned latencies of one class of requests, usually those with one key, and the wins of their hedges.
#[derive(Debug, Default)]
pub(crate) struct Class {
    pub(crate) estimator: Estimator,
    pub(crate) guard: Guard,
}

/// All classes of a layer.
///
/// A class is found by the 64-bit hash of its key with a random seed, so that a look-up allocates nothing. Two keys
/// with the same hash share a class. A thread that finds or adds a class waits for no other thread: to add a class, it
/// replaces the whole table.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    /// The class of requests without a key, and of requests with a key beyond the first 256.
    pub(crate) rest: Class,
    table: ArcSwap<ClassTable>,
    hasher: RandomState,
}

/// The name and the class of each key, by the key's hash.
type ClassTable = HashMap<u64, (Arc<str>, Arc<Class>)>;

impl Classes {
    #[cold]
    fn add(&self, hash: u64, key: &(impl Display + ?Sized)) -> Option<Arc<Class>> {
        let name = Arc::from(key.to_string());
        let class = Arc::<Class>::default();
        self.table.rcu(|table| {
            let mut table = HashMap::clone(table);
            if table.len() < MAX_CLASSES {
                // Another thread may have added the class first.
                let entry = table.entry(hash);
                entry.or_insert_with(|| (Arc::clone(&name), Arc::clone(&class)));
            }
            table
        });
        let table = self.table.load();
        table.get(&hash).map(|(_, class)| Arc::clone(class))
    }

    /// Computes the thresholds of all classes for `target`.
    pub(crate) fn apply(&self, now: u64, target: &QuantileTarget) {
        self.rest.estimator.apply(now, target);
        for (_, class) in self.table.load().values() {
            class.estimator.apply(now, target);
        }
    }

    /// The names and delays of all keyed classes, sorted by name.
    pub(crate) fn delays(&self, bounds: &DelayBounds) -> Vec<(Arc<str>, Option<Duration>)> {
        let table = self.table.load();
        let delay = |class: &Class| bounds.delay(class.estimator.threshold());
        let delays = table.values();
        let delays = delays.map(|(name, class)| (Arc::clone(name), delay(class)));
        let mut delays: Vec<_> = delays.collect();
        delays.sort_unstable();
        delays
    }
}

impl PerKey for Classes {
    type Found = Arc<Class>;

    /// Returns the class of a key, and adds it if there is room. `None` stands for [`rest`](Self::rest).
    fn of<K: Hash + Display + ?Sized>(&self, key: &K) -> Option<Arc<Class>> {
        let hash = self.hasher.hash_one(key);
        let table = self.table.load();
        match table.get(&hash) {
            Some((_, class)) => Some(Arc::clone(class)),
            None if table.len() >= MAX_CLASSES => None,
            None => self.add(hash, key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_keeps_its_class_and_keys_beyond_the_bound_share_one() {
        let classes = Classes::default();
        let first: Vec<_> = (0..256).map(|key| classes.of(&key).unwrap()).collect();
        assert!((256..10_000).all(|key| classes.of(&key).is_none()));
        for (key, class) in first.iter().enumerate() {
            let again = classes.of(&i32::try_from(key).unwrap()).unwrap();
            assert!(Arc::ptr_eq(&again, class));
        }
    }

    #[test]
    fn classes_are_listed_by_name() {
        let classes = Classes::default();
        for key in ["search", "item", "search"] {
            classes.of(&key);
        }
        let bounds = crate::trigger::Percentile::default().bounds();
        let names: Vec<_> = classes.delays(&bounds).into_iter().collect();
        assert_eq!(names, [("item".into(), None), ("search".into(), None)]);
    }

    #[test]
    fn threads_that_add_a_class_concurrently_get_the_same() {
        let classes = Classes::default();
        let all: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|_| scope.spawn(|| (0..100).map(|key| classes.of(&key).unwrap())))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap().collect::<Vec<_>>())
                .collect()
        });
        for classes in &all {
            let same = classes.iter().zip(&all[0]);
            assert!(same.into_iter().all(|(one, other)| Arc::ptr_eq(one, other)));
        }
    }
}
