use std::time::Duration;

use crate::BuildError;

/// How an instance counts together with the others of its fleet.
///
/// # Default
///
/// [`Exact`](Self::Exact).
///
/// # Errors
///
/// Reported when the limiter is built: a time outside of 10 ms to 60 s, and leases with several policies.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, Consistency, backend::Memory};
///
/// let policy = Policy::new("searches", Quota::per_second(5_000));
/// let limiter = Limiter::builder(Memory::default(), policy)
///     .consistency(Consistency::leased_for(Duration::from_secs(1)))
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// Each request is decided by the store: one round trip each, and never one too many.
    #[default]
    Exact,
    /// Tokens of keys that are asked about often are paid for in advance, and spent without a round trip.
    ///
    /// A key is leased from 16 requests per lease time on. This instance then debits up to three quarters of what it needs in that time,
    /// and at most a quarter of what the store has left, or when that is little the tokens of 16 requests; it asks for more before they
    /// are used up, in the background, and one at a time. Requests with a [leaky queue](crate::Policy::leaky_queue), and of keys that are seldom asked about, are
    /// decided exactly.
    ///
    /// What [remains](crate::Decision::remaining) counts what is leased here as left; a [look](crate::Limiter::peek) tells what the store has
    /// besides.
    ///
    /// In any interval D a fleet admits at most what the store would admit in D + the lease time, however many instances there are and
    /// whatever becomes of them. That is the limit with a burst that is as much larger as the rate times the lease time. A lease ends
    /// that time after it was *asked for*, by this process's clock, which stands still while a machine is suspended; what is left then dies,
    /// and what is left before can be [given back](crate::Limiter::return_leases) when an instance is shut down.
    ///
    /// When the store has less than was wanted, requests without tokens are decided one by one; when it goes on having less, they are
    /// rejected here for the time of 2, 4, 8 and at last 16 requests (never longer than a lease time), after which the next one asks. A
    /// rejection says how long the store said it would last, if that is longer; what costs less than was rejected is decided by the store.
    /// So a fleet that is asked for far too much lets through what the limit allows, in heaps, for a round trip per 16 requests.
    ///
    /// Choose a lease time of at least six round trips, and as much longer as the overshoot allows. While a store [is left
    /// alone](crate::FailureMode) leases are spent to their end.
    ///
    /// # Cost
    ///
    /// 240 kB per limiter. A request that is paid for takes no wait; and no allocation and no lock, unless it is the one that asks for
    /// more.
    Leased(Duration),
    /// This instance decides by what it believes, and exchanges with the store at intervals: what it has used, and what all have.
    ///
    /// There is no bound on what a fleet admits meanwhile but what each instance admits by itself: in one interval, the burst and what comes in
    /// that interval, as many times as there are instances. What was too much is a debt, for which all are rejected later; so over a
    /// long time the limit holds, in great waves. [Leases](Self::Leased) save as many round trips, and have a bound: this
    /// is for stores that are away for long times, and for limits that need not hold.
    ///
    /// The store's failures are not felt, nor told. What was used since the last exchange is lost with the last handle.
    ///
    /// # Cost
    ///
    /// A task for each key that is asked about, with two round trips per interval; at most 10,000 for each policy, beyond which keys are
    /// decided exactly, and so are keys of more than 1,000 bytes. A short lock for each request.
    Eventual(Duration),
}

/// Timers are no finer than a millisecond, and a lease that is shorter than a few round trips saves none.
const SHORTEST: Duration = Duration::from_millis(10);

/// As long as any deadline.
const LONGEST: Duration = Duration::from_secs(60);

impl Consistency {
    /// Leases of 100 ms: a few round trips between data centres of one region, and a tenth of the limit per second too many at
    /// worst.
    #[must_use]
    pub const fn leased() -> Self {
        Self::Leased(Duration::from_millis(100))
    }

    /// Leases of this time, from 10 ms to 60 s.
    #[must_use]
    pub const fn leased_for(time: Duration) -> Self {
        Self::Leased(time)
    }

    pub(crate) fn check(self) -> Result<(), BuildError> {
        match self {
            Self::Exact => Ok(()),
            Self::Leased(time) | Self::Eventual(time) => in_bounds("consistency", time),
        }
    }
}

fn in_bounds(field: &'static str, time: Duration) -> Result<(), BuildError> {
    if (SHORTEST..=LONGEST).contains(&time) {
        return Ok(());
    }
    let bound = format_args!("{SHORTEST:?} to {LONGEST:?}");
    Err(BuildError::new(field, format_args!("{time:?}"), bound))
}
