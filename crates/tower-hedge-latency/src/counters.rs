use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::SkipReason;

/// Declares the public counts, and a counter for each.
macro_rules! counts {
    ($($(#[$doc:meta])* pub $name:ident: u64,)*) => {
        /// Counts of a hedge layer since it was built, over all of its services.
        ///
        /// Each number is exact, but the numbers are not read at one instant.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct HedgeCounts {
            $($(#[$doc])* pub $name: u64,)*
        }

        /// The atomic counters behind [`HedgeCounts`].
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
    /// Calls that have ended, including calls that their callers dropped.
    pub calls: u64,
    /// Calls whose request must not be hedged, such as a request that is itself a hedge. For these calls, the layer
    /// neither deposits into a [budget](crate::HedgeLayerBuilder::budget) with a ratio nor trains the trigger. This
    /// number excludes all calls in [`Mode::Off`](crate::Mode::Off), and calls whose
    /// [`HedgeOverride`](crate::HedgeOverride) allows no hedge.
    pub ineligible: u64,
    /// Calls that were still in flight when the trigger made their first hedge due. With a learned percentile `q`,
    /// their share of the eligible calls is usually close to 1 − q.
    ///
    /// A call whose first hedge followed a failure does not count: see
    /// [`hedge_on_failure`](crate::HedgeLayerBuilder::hedge_on_failure).
    pub late: u64,
    /// Hedges that were sent.
    pub hedges: u64,
    /// Calls that a hedge won: the caller received the hedge's success.
    pub hedge_wins: u64,
    /// Hedges that were due, but were not sent because the budget allowed no extra attempt.
    pub denied: u64,
    /// Hedges that were due, but were not sent because few hedges win: see
    /// [`SkipReason::HeldBack`](crate::SkipReason::HeldBack).
    pub held_back: u64,
    /// Hedges that were due, but were not sent for the reason [`SkipReason::NotReady`](crate::SkipReason::NotReady).
    /// Usually, their service was not ready in time.
    pub not_ready: u64,
    /// Hedges that were due, but were not sent because the request cannot be resent. For example, the request has the
    /// header field `Upgrade`, or an attempt has read more than the
    /// [`replay_limit`](crate::HedgeLayerBuilder::replay_limit) of a streaming body.
    pub not_resendable: u64,
    /// Hedges that were due in [`Mode::Shadow`](crate::Mode::Shadow), which sends no hedges.
    pub shadowed: u64,
    /// Calls that their callers dropped.
    pub cancelled: u64,
    /// Calls that their callers dropped after the first hedge was due.
    ///
    /// If callers drop most [`late`](Self::late) calls, a timeout above the layer probably leaves hedges no time to
    /// win. With a percentile, set a [`max_delay`](crate::HedgeLayerBuilder::max_delay) well below that timeout.
    pub cancelled_late: u64,
    /// Calls whose outcome was a failure, retryable or not. Dropped calls have no outcome.
    pub failed: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    /// Increments the counter, and returns its previous value.
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
            // `SkipReason::Shadow`, the only other reason.
            _ => &self.shadowed,
        };
        counter.count();
    }
}
