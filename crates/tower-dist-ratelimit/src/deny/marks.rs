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

/// Marks that keys share by chance: what is forgotten of one key is then forgotten of another, too.
const MARKS: usize = 4096;

/// What has happened to keys since, apart from being asked about: a number for each that grows when something is put back or
/// charged afterwards, and when its quota is another one.
pub(super) struct Marks(Box<[Mark]>);

#[derive(Default)]
struct Mark {
    number: AtomicU64,
    /// The quota of the last charge, as bits that stand for it.
    quota: AtomicU64,
}

impl Marks {
    pub(super) fn new() -> Self {
        Self((0..MARKS).map(|_| Mark::default()).collect())
    }

    fn mark(&self, tag: u64) -> &Mark {
        // Other bits than those that choose a rejection's place.
        let number = usize::try_from((tag >> 32) % MARKS as u64).unwrap_or_default();
        &self.0[number]
    }

    /// The number of a key that is asked about with this quota.
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

/// Not zero. That two quotas have the same is no more likely than that two keys have.
pub(super) fn bits(quota: Quota) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write_u64(quota.limit());
    hasher.write_u128(quota.window().as_nanos());
    hasher.write_u64(quota.burst_size());
    hasher.finish().max(1)
}

/// Something is being put back, or charged afterwards.
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
