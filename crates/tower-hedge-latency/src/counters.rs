use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::SkipReason;

/// What a layer's services have done since it was made.
///
/// Each number is exact; together they are not of one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct HedgeCounts {
    /// Calls that have ended, all of them.
    pub calls: u64,
    /// Calls whose request may not be hedged, such as one that is a hedge of another client. They neither deposit
    /// into the budget nor train the trigger.
    pub ineligible: u64,
    /// Calls that were still out when their first hedge was due. With a percentile `q` that is
    /// learned, they settle at a share of 1 − q of the eligible ones.
    pub late: u64,
    /// Hedges that were sent.
    pub hedges: u64,
    /// Calls whose outcome is a hedge's success.
    pub hedge_wins: u64,
    /// Hedges that were due, but the budget had no token.
    pub denied: u64,
    /// Hedges that were due, but were held back since hedges hardly ever win.
    pub held_back: u64,
    /// Hedges that were due, but no instance of the service was ready in time.
    pub not_ready: u64,
    /// Hedges that were due, but the request can't be copied, or not any more.
    pub not_repeatable: u64,
    /// Hedges that would have been sent, but the layer only counts.
    pub shadowed: u64,
    /// Calls that their callers dropped.
    pub cancelled: u64,
    /// Calls that their callers dropped after the first hedge was due. If most [`late`](Self::late) calls end so, a
    /// timeout above the layer leaves hedges no time to win: set a
    /// [`max_delay`](crate::HedgeLayerBuilder::max_delay) well below that timeout.
    pub cancelled_late: u64,
    /// Calls that ended without a success: their outcome is a failure, retryable or not.
    pub failed: u64,
}

/// One number each; see [`HedgeCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) calls: Counter,
    pub(crate) ineligible: Counter,
    pub(crate) late: Counter,
    pub(crate) hedges: Counter,
    pub(crate) hedge_wins: Counter,
    pub(crate) denied: Counter,
    pub(crate) held_back: Counter,
    pub(crate) not_ready: Counter,
    pub(crate) not_repeatable: Counter,
    pub(crate) shadowed: Counter,
    pub(crate) cancelled: Counter,
    pub(crate) cancelled_late: Counter,
    pub(crate) failed: Counter,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Says how many there were before.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }

    fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

impl Counters {
    pub(crate) fn skip(&self, reason: SkipReason) {
        let counter = match reason {
            SkipReason::Denied => &self.denied,
            SkipReason::HeldBack => &self.held_back,
            SkipReason::NotReady => &self.not_ready,
            SkipReason::NotRepeatable => &self.not_repeatable,
            // `Shadow`.
            _ => &self.shadowed,
        };
        counter.count();
    }

    pub(crate) fn read(&self) -> HedgeCounts {
        HedgeCounts {
            calls: self.calls.get(),
            ineligible: self.ineligible.get(),
            late: self.late.get(),
            hedges: self.hedges.get(),
            hedge_wins: self.hedge_wins.get(),
            denied: self.denied.get(),
            held_back: self.held_back.get(),
            not_ready: self.not_ready.get(),
            not_repeatable: self.not_repeatable.get(),
            shadowed: self.shadowed.get(),
            cancelled: self.cancelled.get(),
            cancelled_late: self.cancelled_late.get(),
            failed: self.failed.get(),
        }
    }
}
