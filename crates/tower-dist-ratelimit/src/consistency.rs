use std::time::Duration;

use crate::{BuildError, build_error::ensure};

/// How the instances of a fleet agree on a limit.
///
/// # Default
///
/// [`Exact`](Self::Exact).
///
/// # Errors
///
/// Building the limiter fails if the lease time of [`Leased`](Self::Leased) or the interval of
/// [`Eventual`](Self::Eventual) is outside 10 ms to 60 s. It also fails if leases are combined with several policies.
/// With `Eventual`, a [`Memory`](crate::backend::Memory) holds this process's counts. Building then also fails if a
/// `Memory` does not support a policy, or for more than 16 policies.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, Consistency, backend::Memory};
///
/// let policy = Policy::new("searches", Quota::per_second(5_000));
/// let builder = || Limiter::builder(Memory::default(), policy.clone());
/// let limiter = builder().consistency(Consistency::leased_for(Duration::from_secs(1))).build()?;
/// let error = builder().consistency(Consistency::leased_for(Duration::from_millis(1))).build().unwrap_err();
/// assert_eq!((error.field(), error.bound()), ("consistency", "10ms to 60s"));
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consistency {
    /// Usually the backend decides each request. A backend on a server needs at least one round trip for this. A
    /// [cached rejection](crate::LimiterBuilder::deny_cache) needs none. Unless the [failure mode](crate::FailureMode)
    /// decides, a fleet admits no more than the backend allows.
    #[default]
    Exact,
    /// This instance pays for tokens of frequently requested keys in advance, and spends them without a round trip. The
    /// variant's duration is the lease time.
    ///
    /// A key is usually leased if this instance gets at least 16 requests for it per lease time. At most 1,024 keys
    /// have leases at a time. A refill requests more leased tokens for a key from the backend. Refills usually run in
    /// the background before the leased tokens run out, one at a time per key. A refill tops the leased tokens up to
    /// about three quarters of the tokens that this instance needs in a lease time. The refill leases at most the
    /// larger of two numbers: a quarter of the tokens that the backend last reported as remaining, and the cost of 16
    /// requests. The second number is at most a quarter of the burst. If a request waits for the refill, the refill
    /// also pays the request's cost.
    ///
    /// Requests for keys that are not leased are usually decided as with [`Exact`](Self::Exact). Under a [leaky
    /// queue](crate::Policy::leaky_queue), all requests are decided as with `Exact`. Outside of a tokio runtime there
    /// are no refills.
    ///
    /// [`Decision::remaining`](crate::Decision::remaining) usually includes the tokens leased here. A
    /// [peek](crate::Limiter::peek) reports only the tokens that remain in the backend.
    ///
    /// Choose a lease time of at least six round trips. A longer lease time saves more round trips, and admits
    /// more above the limit. While the [circuit is open](crate::FailureMode), existing leases are spent until
    /// they end.
    ///
    /// # Over-admission
    ///
    /// Unless the [failure mode](crate::FailureMode) decides, a fleet admits in any interval D at most the tokens that
    /// the backend admits in D + the lease time. For a bucket, this is in effect a burst that is larger by the rate
    /// times the lease time. Neither the number of instances nor the crash of an instance changes the bound.
    ///
    /// A lease ends one lease time after the instance *requests* it. The instance measures the time by its own clock,
    /// which can stop while its machine is suspended. Unused tokens expire with the lease. An instance that shuts down
    /// before its leases end can [return](crate::Limiter::return_leases) unused leased tokens of a bucket. For each
    /// key, it keeps as many tokens as the bucket gains within the sum of the lease time and the backend timeout, and
    /// returns only the rest.
    ///
    /// # Above the limit
    ///
    /// If the backend grants fewer tokens than requested, this instance usually makes a pause before the key's next
    /// refill. During the pause it rejects requests that find too few leased tokens. If the pause follows a rejection
    /// by the backend, this instance rejects only requests that cost at least as much as the rejected request. The
    /// backend then decides on cheaper requests.
    ///
    /// The first pause lasts for about the time in which 1 request for the key arrives here. While the shortage
    /// continues, the pauses last for the time of 2, 4, 8 and finally 16 requests. A pause lasts longer if the
    /// backend's `retry_after` is longer, but at most one lease time. The `retry_after` of a request rejected here is
    /// usually the remaining pause. If the rest of the backend's `retry_after` is longer, that rest is reported.
    ///
    /// With these pauses, an overloaded fleet admits about the full limit, in bursts. The backend then gets about one
    /// query per 16 requests.
    ///
    /// # Cost
    ///
    /// 230 kB per limiter or layer, and at most 1,000 bytes for each leased key. A request that spends leased tokens
    /// does not wait for the backend. Its decision usually allocates nothing, except to start a refill.
    Leased(Duration),
    /// This instance decides with a local copy of the counts, and exchanges usage with the backend at this
    /// interval.
    ///
    /// Over-admission grows with the number of instances: in one interval, each instance can admit the burst and the
    /// tokens that are gained in that interval. The excess of a bucket becomes a debt, for which the whole fleet later
    /// rejects requests. So the fleet admits requests in waves. While exchanges succeed, the limit of a bucket holds on
    /// average over a long time. A window forgets its excess when it ends, so every window can exceed the limit.
    ///
    /// [Leases](Self::Leased) save about as many round trips as this mode, and they bound the excess. Use this mode for
    /// backends with long outages and for advisory limits.
    ///
    /// A backend failure in an exchange fails no request and emits no event. If a report of usage may have reached the
    /// backend, the report is not sent again, so its usage can be lost. Usage since the last exchange is lost when the
    /// limit is dropped or its runtime shuts down. During an outage, each instance decides by its own count. After the
    /// outage, it reports the usage that still counts here. Tokens that were regained meanwhile, and tokens of windows
    /// that have ended, are not reported.
    ///
    /// Some requests are decided as with [`Exact`](Self::Exact): requests outside of a tokio runtime, and requests for
    /// keys of more than about 1,000 bytes. The same holds for requests for further keys while a policy has about
    /// 10,000 active keys. A key is active while this instance gets requests for it at least about once per interval,
    /// and during an outage also while some of its usage counts here.
    /// For all requests decided as with `Exact`, the [failure mode](crate::FailureMode) decides as usual if the backend
    /// fails. If these failures open the circuit, the failure mode usually decides on the requests of all keys.
    ///
    /// # Cost
    ///
    /// A task per active key, with up to two queries of the backend per exchange, and short locks per request. Each
    /// policy has at most about 10,000 active keys.
    Eventual(Duration),
}

/// Ten times the resolution of tokio's timers, which is 1 ms.
const SHORTEST: Duration = Duration::from_millis(10);

/// The same maximum as for the timeout of the backend.
const LONGEST: Duration = Duration::from_secs(60);

impl Consistency {
    /// Leases of 100 ms, for a backend whose round trip takes at most about 16 ms. Unless the failure mode decides, a
    /// fleet admits in any second at most the tokens that the backend admits in 1.1 s.
    #[must_use]
    pub const fn leased() -> Self {
        Self::Leased(Duration::from_millis(100))
    }

    /// Leases of this length, from 10 ms to 60 s.
    #[must_use]
    pub const fn leased_for(time: Duration) -> Self {
        Self::Leased(time)
    }

    pub(crate) fn check(self) -> Result<(), BuildError> {
        let (Self::Leased(time) | Self::Eventual(time)) = self else {
            return Ok(());
        };
        let is_valid = (SHORTEST..=LONGEST).contains(&time);
        ensure!(is_valid, "consistency" is time, "{SHORTEST:?} to {LONGEST:?}");
        Ok(())
    }
}
