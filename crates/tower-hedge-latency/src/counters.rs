use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::SkipReason;

/// Declares the counts that users read, and a counter for each.
macro_rules! counts {
    ($($(#[$doc:meta])* pub $name:ident: u64,)*) => {
        /// What a layer's services have done since it was made.
        ///
        /// Each number is exact; together they are not of one instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct HedgeCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// One counter per number of [`HedgeCounts`].
        #[derive(Debug, Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: Counter,)*
        }

        impl Counters {
            pub(crate) fn read(&self) -> HedgeCounts {
                HedgeCounts {
                    $($name: self.$name.0.load(Relaxed),)*
                }
            }
        }
    };
}

counts! {
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
    pub not_resendable: u64,
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

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Says how many there were before.
    #[inline]
    pub(crate) fn count(&self) -> u64 {
        self.0.fetch_add(1, Relaxed)
    }
}

impl Counters {
    pub(crate) fn skip(&self, reason: SkipReason) {
        let counter = match reason {
            SkipReason::Denied => &self.denied,
            SkipReason::HeldBack => &self.held_back,
            SkipReason::NotReady => &self.not_ready,
            SkipReason::NotResendable => &self.not_resendable,
            // `Shadow`.
            _ => &self.shadowed,
        };
        counter.count();
    }
}
