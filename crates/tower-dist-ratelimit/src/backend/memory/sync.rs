//! The locks and atomics of the standard library, or of the model checker.

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(all(test, tower_dist_ratelimit_loom))]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
