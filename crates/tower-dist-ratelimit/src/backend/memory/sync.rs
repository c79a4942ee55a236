//! The locks and atomics of the standard library, or of the model checker.

use std::sync::PoisonError;

use smallvec::SmallVec;

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(all(test, tower_dist_ratelimit_loom))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};

pub(super) type Locked<'a> = SmallVec<[MutexGuard<'a, ()>; 4]>;

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the mutexes with these numbers, each once. Locks are taken in ascending order, so callers cannot deadlock.
pub(super) fn lock_all(
    mutexes: &[Mutex<()>],
    numbers: impl Iterator<Item = usize> + Clone,
) -> Locked<'_> {
    let (mut locked, mut last) = (Locked::new(), None);
    while let Some(next) = numbers.clone().filter(|&number| Some(number) > last).min() {
        locked.push(lock(&mutexes[next]));
        last = Some(next);
    }
    locked
}
