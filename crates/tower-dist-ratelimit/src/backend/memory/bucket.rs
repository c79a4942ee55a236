use std::sync::atomic::Ordering::Acquire;

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
use zerocopy::{FromZeros, KnownLayout};

use super::{fingerprint::Fingerprint, sync::AtomicU64};

/// Slots in a bucket. One is enough to model how threads meet.
pub(super) const WAYS: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    4
};

/// Four slots: who they belong to, and each owner's state.
///
/// One cache line, so that a key that is not in the caches is found and charged for the price of one. All zeros is an unused
/// bucket.
#[derive(Debug)]
#[cfg_attr(
    not(all(test, tower_dist_ratelimit_loom)),
    derive(FromZeros, KnownLayout)
)]
#[repr(C, align(64))]
pub(super) struct Bucket {
    keys: [AtomicU64; WAYS],
    values: [AtomicU64; WAYS],
}

/// A place for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) key: &'a AtomicU64,
    pub(super) value: &'a AtomicU64,
}

impl Bucket {
    /// So many of them, if there is memory for them. Zeroed memory comes from the system untouched, page by page as it
    /// is used.
    #[cfg(not(all(test, tower_dist_ratelimit_loom)))]
    pub(super) fn unused(count: usize) -> Option<Box<[Self]>> {
        <[Self]>::new_box_zeroed_with_elems(count).ok()
    }

    #[cfg(all(test, tower_dist_ratelimit_loom))]
    pub(super) fn unused(count: usize) -> Option<Box<[Self]>> {
        let line = || std::array::from_fn(|_| AtomicU64::new(0));
        let bucket = |_| Self {
            keys: line(),
            values: line(),
        };
        Some((0..count).map(bucket).collect())
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.keys
            .iter()
            .zip(&self.values)
            .map(|(key, value)| Slot { key, value })
    }

    #[inline]
    pub(super) fn find(&self, key: Fingerprint) -> Option<Slot<'_>> {
        self.slots().find(|slot| slot.belongs_to(key))
    }
}

impl Slot<'_> {
    pub(super) fn belongs_to(self, key: Fingerprint) -> bool {
        self.key.load(Acquire) == key.bits()
    }
}
