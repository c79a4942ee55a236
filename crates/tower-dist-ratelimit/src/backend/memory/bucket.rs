use std::sync::atomic::Ordering::Acquire;

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
use zerocopy::{FromZeros, KnownLayout};

use super::{fingerprint::Fingerprint, sync::AtomicU64};

/// Slots in a bucket. One is enough to model how threads meet.
pub(super) const WAYS: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    8
};

/// Words that share a cache line.
#[derive(Debug)]
#[cfg_attr(
    not(all(test, tower_dist_ratelimit_loom)),
    derive(FromZeros, KnownLayout)
)]
#[repr(C, align(64))]
pub(super) struct Line([AtomicU64; WAYS]);

/// Eight slots: who they belong to, and each owner's state.
///
/// Two lines, so that looking for a key touches one line, and charging it one more: the next, which processors fetch
/// along with an even one. All zeros is an unused bucket.
#[derive(Debug)]
#[cfg_attr(
    not(all(test, tower_dist_ratelimit_loom)),
    derive(FromZeros, KnownLayout)
)]
#[repr(C, align(128))]
pub(super) struct Bucket {
    keys: Line,
    values: Line,
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
        let line = || Line(std::array::from_fn(|_| AtomicU64::new(0)));
        let bucket = |_| Self {
            keys: line(),
            values: line(),
        };
        Some((0..count).map(bucket).collect())
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.keys
            .0
            .iter()
            .zip(&self.values.0)
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
