//! What threads meet at: the standard library's, or that of the model checker.

#[cfg(not(tower_dist_ratelimit_loom))]
pub(super) use std::sync::{Mutex, MutexGuard, atomic::AtomicU64};

#[cfg(tower_dist_ratelimit_loom)]
pub(super) use loom::sync::{Mutex, MutexGuard, atomic::AtomicU64};
