use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use super::{purse::Purse, sync::AtomicU64};

/// One key that is asked about often. What a request that is answered here looks at, all without a lock.
#[derive(Debug)]
pub(super) struct Slot {
    /// Whose it is; zero for nobody's.
    tag: AtomicU64,
    /// Requests since the demand was last reckoned.
    pub(super) seen: AtomicU64,
    /// Two, so that a new lease can come before the last one has ended.
    purses: [Purse; 2],
    /// With no more lasting tokens than this it is time for more.
    pub(super) low: AtomicU64,
    /// When more may be asked for.
    pub(super) not_before: AtomicU64,
    /// Whom there are no tokens for is rejected until then, if it costs at least as much.
    pub(super) reject_until: AtomicU64,
    pub(super) reject_from: AtomicU64,
    /// When the store would have that much, if it has said so.
    pub(super) due: AtomicU64,
    /// What the store last told about the key: the limit, what is left, and when it is full again.
    pub(super) limit: AtomicU64,
    pub(super) remaining: AtomicU64,
    pub(super) full_at: AtomicU64,
}

/// What is still in the purses, after a request was paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) tokens: u64,
    /// Those of them that do not die soon.
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

    /// Pays for a request, from the purse that dies first. What can still be spent at `soon` lasts.
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

    /// What can be spent now.
    pub(super) fn held(&self, now: u64) -> u64 {
        let purses = self.purses.iter();
        purses.fold(0, |sum, purse| sum.saturating_add(purse.left(now)))
    }

    /// Puts in a lease, in place of what is used up or dies first. The caller holds the set's lock.
    pub(super) fn fill(&self, tokens: u64, deadline: u64, now: u64) {
        let [one, other] = &self.purses;
        let key = |purse: &Purse| (purse.left(now) > 0, purse.deadline());
        let purse = if key(one) <= key(other) { one } else { other };
        purse.fill(tokens, deadline);
    }

    /// Lets all tokens die, and says how many could still have been spent. The caller holds the set's lock.
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

    /// Makes it another key's. The caller holds the set's lock.
    pub(super) fn give_to(&self, tag: u64) {
        // First nobody can spend, then it is another's: whoever sees the new one's tokens sees whose they are.
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
