use std::sync::atomic::{AtomicU64, Ordering::Acquire};

use zerocopy::{FromZeros, KnownLayout};

use super::fingerprint::Fingerprint;

/// Eight words that share a cache line.
#[derive(Debug, FromZeros, KnownLayout)]
#[repr(C, align(64))]
pub(super) struct Line([AtomicU64; 8]);

/// Eight slots: who they belong to, and when each owner's token bucket is full.
///
/// Two lines, so that looking for a key touches one line, and charging it one more: the next, which processors fetch
/// along with an even one. All zeros is an unused bucket.
#[derive(Debug, FromZeros, KnownLayout)]
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
    pub(super) fn slots(&self) -> impl Iterator<Item = Slot<'_>> {
        self.keys
            .0
            .iter()
            .zip(&self.values.0)
            .map(|(key, value)| Slot { key, value })
    }

    pub(super) fn find(&self, key: Fingerprint) -> Option<Slot<'_>> {
        self.slots().find(|slot| slot.belongs_to(key))
    }
}

impl Slot<'_> {
    pub(super) fn belongs_to(self, key: Fingerprint) -> bool {
        self.key.load(Acquire) == key.bits()
    }

    /// The value, if it is this key's.
    pub(super) fn read(self, key: Fingerprint) -> Option<u64> {
        let value = self.value.load(Acquire);
        // A value that a new owner has written comes after the key was taken away, so this looks after the value.
        self.belongs_to(key).then_some(value)
    }
}
