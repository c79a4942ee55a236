use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{purse::Purse, sync::AtomicU64};

/// State of one frequently requested key, read without a lock by requests that are decided here.
#[derive(Debug)]
pub(super) struct Slot {
    /// The tag of the slot's key, or 0 if the slot is free.
    tag: AtomicU64,
    /// Requests since the last update of the demand.
    pub(super) seen: AtomicU64,
    /// Two purses, so that a refill can arrive before the previous lease ends.
    purses: [Purse; 2],
    /// A refill starts when the lasting tokens fall to this number.
    pub(super) low: AtomicU64,
    /// Earliest time of the next refill.
    pub(super) not_before: AtomicU64,
    /// Until this time, a request without tokens is rejected here if it costs at least `reject_from`.
    pub(super) reject_until: AtomicU64,
    pub(super) reject_from: AtomicU64,
    /// When the wait in the backend's last rejection ends, or 0 if its last answer was no rejection.
    pub(super) due: AtomicU64,
    /// The limit, the remaining tokens and the time at which the bucket is full, from the backend's last
    /// answer.
    pub(super) limit: AtomicU64,
    pub(super) remaining: AtomicU64,
    pub(super) full_at: AtomicU64,
}

/// Leased tokens that remain after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) tokens: u64,
    /// Tokens that do not expire soon.
    pub(super) lasting: u64,
}

impl Slot {
    pub(super) fn new() -> Self {
        Self {
            tag: AtomicU64::new(0),
            seen: AtomicU64::new(0),
            purses: [Purse::new(), Purse::new()],
            low: AtomicU64::new(0),
            not_before: AtomicU64::new(0),
            reject_until: AtomicU64::new(0),
            reject_from: AtomicU64::new(0),
            due: AtomicU64::new(0),
            limit: AtomicU64::new(0),
            remaining: AtomicU64::new(0),
            full_at: AtomicU64::new(0),
        }
    }

    #[inline]
    pub(super) fn is(&self, tag: u64) -> bool {
        self.tag() == tag
    }

    #[inline]
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Acquire)
    }

    /// Pays for a request from one purse, preferably the purse that expires first. Tokens that can still be
    /// spent at `soon` count as lasting.
    #[inline]
    pub(super) fn spend(&self, tag: u64, cost: u64, now: u64, soon: u64) -> Option<Left> {
        let deadlines = [self.purses[0].deadline(), self.purses[1].deadline()];
        let first = usize::from(deadlines[1] < deadlines[0]);
        [first, 1 - first].into_iter().find_map(|number| {
            let [purse, other] = [&self.purses[number], &self.purses[1 - number]];
            let left = purse.spend(cost, now, || self.is(tag))?;
            let lasting = if soon < deadlines[number] { left } else { 0 };
            Some(Left {
                tokens: left.saturating_add(other.left(now)),
                lasting: lasting.saturating_add(other.left(soon)),
            })
        })
    }

    /// Returns the tokens that can be spent at `now`.
    pub(super) fn held(&self, now: u64) -> u64 {
        let purses = self.purses.iter();
        purses.fold(0, |sum, purse| sum.saturating_add(purse.left(now)))
    }

    /// Stores a lease in an empty purse, or in place of the purse that expires first. The caller holds
    /// the set's lock.
    pub(super) fn fill(&self, tokens: u64, deadline: u64, now: u64) {
        let [one, other] = &self.purses;
        let key = |purse: &Purse| (purse.left(now) > 0, purse.deadline());
        let purse = if key(one) <= key(other) { one } else { other };
        purse.fill(tokens, deadline);
    }

    /// Discards all tokens, and returns the number of unexpired ones. The caller holds the set's lock.
    pub(super) fn drain(&self, now: u64) -> u64 {
        self.purses.iter().fold(0, |sum, purse| {
            let is_over = now >= purse.deadline();
            let died = purse.fill(0, 0);
            if is_over {
                sum
            } else {
                sum.saturating_add(died)
            }
        })
    }

    /// Assigns the slot to another key. The caller holds the set's lock.
    pub(super) fn give_to(&self, tag: u64) {
        // The purses are emptied before the tag changes, and filled after it. So a thread that sees tokens
        // of the new key also sees the new tag.
        for purse in &self.purses {
            purse.fill(0, 0);
        }
        for number in [
            &self.seen,
            &self.low,
            &self.not_before,
            &self.reject_until,
            &self.reject_from,
            &self.due,
            &self.limit,
            &self.remaining,
            &self.full_at,
        ] {
            number.store(0, Relaxed);
        }
        self.tag.store(tag, Release);
    }
}
