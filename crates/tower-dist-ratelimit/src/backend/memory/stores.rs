use std::sync::Arc;

use super::{atomic_table::AtomicTable, sharded_table::ShardedTable, store::Store};
use crate::{
    Algorithm, BuildError, Quota,
    algorithm::{Bucket, FixedWindow, MAX_LOG, OneNumber},
    arithmetic::Limit,
};

/// A function that builds the store of a policy. The `bool` is `true` if the policy has dynamic quotas. The `usize` is
/// the number of keys that the store has room for.
///
/// # Errors
///
/// A quota that is invalid or that the algorithm cannot count, or too little memory.
pub(crate) type NewStore = fn(Algorithm, Quota, bool, usize) -> NewResult;

type NewResult = Result<Arc<dyn Store>, BuildError>;

/// For a policy without dynamic quotas, builds the store of a bucket.
pub(crate) fn bucket_store(_: Algorithm, quota: Quota, _: bool, keys: usize) -> NewResult {
    numbers(Bucket::<false>::new(quota, None)?, keys)
}

/// Builds the store of any algorithm. A policy refers to this function only after a call of
/// [`counted`](crate::Policy::counted) or [`dynamic_quotas`](crate::Policy::dynamic_quotas). All setters of leaky queues,
/// windows and logs call `counted`, and all setters of dynamic quotas call `dynamic_quotas`. So if a binary calls
/// neither of the two, the linker can drop the code that only `any_store` needs.
pub(crate) fn any_store(
    algorithm: Algorithm,
    quota: Quota,
    varies: bool,
    keys: usize,
) -> NewResult {
    match algorithm {
        Algorithm::FixedWindow { staggered } => numbers(FixedWindow::new(quota, staggered)?, keys),
        Algorithm::LeakyQueue { max_wait } if !varies => {
            numbers(Bucket::<true>::new(quota, Some(max_wait))?, keys)
        }
        _ if !varies && !algorithm.has_windows() => bucket_store(algorithm, quota, varies, keys),
        _ => {
            let limit = Limit::with_longest_log(algorithm, quota, MAX_LOG)?;
            Ok(Arc::new(ShardedTable::new(limit.arithmetic, keys)?))
        }
    }
}

fn numbers(arithmetic: impl OneNumber, keys: usize) -> NewResult {
    Ok(Arc::new(AtomicTable::new(arithmetic, keys)?))
}
