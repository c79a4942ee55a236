use std::{ptr, sync::atomic::Ordering::Acquire};

use prefetch_index::prefetch_index;
#[cfg(not(all(test, tower_dist_ratelimit_loom)))]
use zerocopy::FromZeros;

use super::{fingerprint::Fingerprint, sync::AtomicU64};

/// Number of slots in a line. The loom model needs only one.
pub(super) const WAYS: usize = if cfg!(all(test, tower_dist_ratelimit_loom)) {
    1
} else {
    4
};

/// Bytes of a cache line on most processors.
const BYTES: usize = 64;

/// All slots of a policy, in lines.
#[derive(Debug)]
pub(super) struct Lines {
    words: Box<[AtomicU64]>,
    /// The index of the first word that is aligned to a cache line. The allocation itself is aligned only to 8 bytes,
    /// so that the system can zero it page by page at first use. With a larger alignment, an allocator can write zeros
    /// to all pages immediately.
    first: usize,
    count: usize,
}

/// Four slots: the fingerprints of their keys, and their states. All words of a new line are 0.
///
/// A line fills a cache line of 64 bytes, so finding and charging a key in a line usually takes at most one fetch from
/// memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line<'a> {
    keys: &'a [AtomicU64],
    values: &'a [AtomicU64],
}

/// A place for one key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a> {
    pub(super) key: &'a AtomicU64,
    pub(super) value: &'a AtomicU64,
}

impl Lines {
    /// Unused lines, or `None` if the system has no memory for the lines.
    pub(super) fn unused(count: usize) -> Option<Self> {
        let spare = BYTES / size_of::<u64>() - 1;
        let words = zeros(count.checked_mul(2 * WAYS)?.checked_add(spare)?)?;
        let first = words.as_ptr().align_offset(BYTES).min(spare);
        Some(Self {
            words,
            first,
            count,
        })
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Starts to fetch a line from memory. Does nothing on processors that `prefetch_index` does not support.
    pub(super) fn prefetch(&self, number: usize) {
        prefetch_index(&self.words, self.first + number * (2 * WAYS));
    }

    #[inline]
    pub(super) fn get(&self, number: usize) -> Line<'_> {
        let at = self.first + number * (2 * WAYS);
        let (keys, values) = self.words[at..at + 2 * WAYS].split_at(WAYS);
        Line { keys, values }
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

impl<'a> Line<'a> {
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
    /// Returns a number that no other slot has.
    pub(super) fn place(self) -> usize {
        ptr::from_ref(self.key).addr()
    }

    /// Returns a number for the slot's line, which is not its index in [`Lines`]. Consecutive lines have consecutive
    /// numbers.
    pub(super) fn line(self) -> usize {
        self.place() / BYTES
    }

    pub(super) fn belongs_to(self, key: Fingerprint) -> bool {
        self.key.load(Acquire) == key.bits()
    }
}
