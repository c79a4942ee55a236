use std::sync::Arc;

use super::{shelves::Shelves, slots::Slots, store::Store};
use crate::{
    Algorithm, BuildError, Policy,
    algorithm::{
        Adjusted, Arithmetic, FirstHit, FixedWindow, LeakyQueue, MAX_LOG, OneNumber, SlidingLog,
        SlidingWindow, TokenBucket,
    },
};

/// The store that a policy's algorithm needs.
///
/// # Errors
///
/// A quota that the algorithm cannot count; no memory.
pub(super) fn store(policy: &Policy, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    let quota = policy.quota();
    let dynamic = policy.has_dynamic_quotas();
    match policy.algorithm() {
        Algorithm::TokenBucket | Algorithm::LeakyBucket => {
            let bucket = TokenBucket::new(quota)?;
            if dynamic {
                shelves(Adjusted::new(quota, bucket), capacity)
            } else {
                slots(bucket, capacity)
            }
        }
        Algorithm::LeakyQueue { max_wait } => {
            let queue = LeakyQueue::new(quota, max_wait)?;
            if dynamic {
                shelves(Adjusted::new(quota, queue), capacity)
            } else {
                slots(queue, capacity)
            }
        }
        Algorithm::FixedWindow { staggered } => {
            slots(FixedWindow::new(quota, staggered)?, capacity)
        }
        Algorithm::FixedWindowFromFirstRequest => shelves(FirstHit::new(quota)?, capacity),
        Algorithm::SlidingWindow => {
            let windows = SlidingWindow::interpolated(quota, 1)?;
            shelves(windows, capacity)
        }
        Algorithm::SlidingWindowBuckets { count } => {
            let windows = SlidingWindow::interpolated(quota, count)?;
            shelves(windows, capacity)
        }
        Algorithm::SlidingWindowStrict { count } => {
            shelves(SlidingWindow::whole(quota, count)?, capacity)
        }
        Algorithm::SlidingWindowLog => shelves(SlidingLog::new(quota, MAX_LOG)?, capacity),
    }
}

fn slots(arithmetic: impl OneNumber, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    Ok(Arc::new(Slots::new(arithmetic, capacity)?))
}

fn shelves(arithmetic: impl Arithmetic, capacity: usize) -> Result<Arc<dyn Store>, BuildError> {
    Ok(Arc::new(Shelves::new(arithmetic, capacity)?))
}
