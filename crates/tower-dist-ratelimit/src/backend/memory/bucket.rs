use std::{ptr, sync::atomic::Ordering::Acquire};

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
use zerocopy::FromZeros;

use super::{fingerprint::Fingerprint, sync::AtomicU64};

/// Slots in a bucket. One is enough to model how threads meet.
pub(super) const WAYS: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    4
};

/// Of what the processor fetches at a time.
const LINE: usize = 64;

/// All buckets of a policy.
#[derive(Debug)]
pub(super) struct Buckets {
    words: Box<[AtomicU64]>,
    /// Where the first whole line begins. A type that begins there by itself would have its memory written when it is made:
    /// only what no more than `u64` asks for comes zeroed from the system, untouched, page by page as it is used.
    first: usize,
    count: usize,
}

/// Four slots: who they belong to, and each owner's state.
///
/// One cache line, so that a key that is not in the caches is found and charged for the price of one. All zeros is an unused
/// bucket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bucket<'a> {
    keys: &'a [AtomicU64],
    values: &'a [AtomicU64],
}

/// A place for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) key: &'a AtomicU64,
    pub(super) value: &'a AtomicU64,
}

impl Buckets {
    /// So many unused ones, if there is memory for them.
    pub(super) fn unused(count: usize) -> Option<Self> {
        let spare = LINE / size_of::<u64>() - 1;
        let words = zeros(count.checked_mul(2 * WAYS)?.checked_add(spare)?)?;
        let first = words.as_ptr().align_offset(LINE).min(spare);
        Some(Self {
            words,
            first,
            count,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Bucket<'_> {
        let at = self.first + number * (2 * WAYS);
        let (keys, values) = self.words[at..at + 2 * WAYS].split_at(WAYS);
        Bucket { keys, values }
    }
}

#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    <[AtomicU64]>::new_box_zeroed_with_elems(count).ok()
}

#[cfg(all(test, tower_dist_ratelimit_loom))]
fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    Some((0..count).map(|_| AtomicU64::new(0)).collect())
}

impl<'a> Bucket<'a> {
    #[inline]
    pub(super) fn slots(self) -> impl Iterator<Item = Slot<'a>> {
        let slots = self.keys.iter().zip(self.values);
        slots.map(|(key, value)| Slot { key, value })
    }

    #[inline]
    pub(super) fn find(self, key: Fingerprint) -> Option<Slot<'a>> {
        self.slots().find(|slot| slot.belongs_to(key))
    }
}

impl Slot<'_> {
    /// Another number for each.
    pub(super) fn place(self) -> usize {
        ptr::from_ref(self.key).addr()
    }

    /// The same for all of a bucket, and one more for the next.
    pub(super) fn line(self) -> usize {
        self.place() / LINE
    }

    pub(super) fn belongs_to(self, key: Fingerprint) -> bool {
        self.key.load(Acquire) == key.bits()
    }
}
