//! Atomics of the standard library, or of the loom model checker.

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
pub(super) use std::sync::atomic::AtomicU64;

#[cfg(all(test, tower_dist_ratelimit_loom))]
pub(super) use ::loom::sync::atomic::AtomicU64;
