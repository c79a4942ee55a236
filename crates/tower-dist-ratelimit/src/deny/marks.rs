use std::{
    hash::{DefaultHasher, Hasher},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use smallvec::SmallVec;

use super::Denials;
use crate::Quota;

/// Number of versions. Keys can share one, so that invalidating one key invalidates the other.
const MARKS: usize = 4096;

/// Versions of keys. A key's version grows when tokens are returned or charged after a request, and when
/// its quota changes.
pub(super) struct Marks(Box<[Mark]>);

#[derive(Default)]
struct Mark {
    number: AtomicU64,
    /// Hash of the last charge's quota, or 0.
    quota: AtomicU64,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self((0..MARKS).map(|_| Mark::default()).collect())
    }

    fn mark(&self, tag: u64) -> &Mark {
        // The lower bits choose the place of a rejection.
        let number = usize::try_from((tag >> 32) % MARKS as u64).unwrap_or_default();
        &self.0[number]
    }

    /// Returns the version of a key. If its quota has changed, advances the version first.
    pub(super) fn of(&self, tag: u64, quota: Option<Quota>) -> u64 {
        let mark = self.mark(tag);
        let quota = quota.map_or(0, bits);
        if mark.quota.load(SeqCst) != quota {
            mark.quota.store(quota, SeqCst);
            mark.number.fetch_add(1, SeqCst);
        }
        mark.number.load(SeqCst)
    }

    fn touch(&self, tag: u64) {
        self.mark(tag).number.fetch_add(1, SeqCst);
    }
}

/// Returns a nonzero hash of a quota. Two quotas collide no more often than two keys.
pub(super) fn bits(quota: Quota) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(quota.limit());
    hasher.write_u128(quota.window().as_nanos());
    hasher.write_u64(quota.burst_size());
    hasher.finish().max(1)
}

/// An operation that returns tokens or charges them late. It advances the versions of its keys when it
/// starts and when it ends.
pub(super) struct Guard {
    denials: Arc<Denials>,
    tags: SmallVec<[u64; 2]>,
}

impl Guard {
    pub(super) fn new(denials: Arc<Denials>, tags: SmallVec<[u64; 2]>) -> Self {
        let guard = Self { denials, tags };
        guard.touch();
        guard
    }

    fn touch(&self) {
        self.tags
            .iter()
            .for_each(|&tag| self.denials.marks.touch(tag));
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.touch();
    }
}
