use crate::BuildError;

/// Who decides while the store does not: it cannot be reached, does not answer within the
/// [deadline](crate::RateLimitLayerBuilder::backend_timeout), or is not asked, since it has failed too often.
///
/// [`Memory`](crate::backend::Memory) never fails. A request that finds out about a failure waits no longer than the
/// deadline, and nothing is asked twice: a store that is late may have charged the request already. After five failures
/// in a row, or when half of the decisions of the last second have failed (of ten at least), the store is not asked any
/// more; then one request at a time tries it, 50 to 100 ms later and, as long as that fails, after pauses that double up
/// to 2 s. The first good answer makes the decisions the store's again. (With a deadline above 50 ms the pauses begin at one to two
/// deadlines.)
///
/// A [`Decision`](crate::Decision) says by its [`source`](crate::Decision::source) who made it. With the `tracing`
/// feature there is one event when the store is not asked any more, and one when it is again. Failures that do not
/// lead to that are told to the [observer](crate::Event::BackendFailed) alone.
///
/// # Default
///
/// [`Local`](Self::Local), with 1 instance.
///
/// ```
/// use tower_dist_ratelimit::{FailureMode, Policy, Quota, RateLimitLayer, backend::Memory, key};
///
/// assert_eq!(FailureMode::default(), FailureMode::Local { instances: 1 });
/// # let store = Memory::default();
/// // Twelve instances: each of them admits a twelfth for as long as the store is away.
/// let layer = RateLimitLayer::builder(store)
///     .limit(Policy::new("per-client", Quota::per_minute(600)).by(key::header("x-api-key")))
///     .failure_mode(FailureMode::Local { instances: 12 })
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureMode {
    /// The request passes, unlimited: for a service that limits only out of courtesy.
    Open,
    /// The request is rejected with 503, or `UNAVAILABLE` in gRPC: for limits on logins or on spending, of which not one
    /// request too many may pass.
    Closed,
    /// This process decides, by a [`Memory`](crate::backend::Memory) of its own with the layer's policies and keys, and a
    /// share of each quota. Rejections are 503 with the problem type `temporary-reduced-capacity`, since the client is
    /// within its own limits.
    ///
    /// The limits hold for each instance, however unevenly a client's requests are spread. The `Memory` is bounded (100,000 keys per policy) and takes a
    /// few kilobytes while it is not needed. Keys start with all of their share when the store fails.
    ///
    /// # After an outage
    ///
    /// Instances return one by one. For 5 s after the backend has answered again (with a `backend_timeout` above 1 s, for 3 s and two deadlines), an instance admits
    /// only requests that both the backend and its share allow. It charges the tokens that it has admitted alone to the
    /// backend, with the next request of the same key. So the full rate of an instance that has returned does not add to
    /// the shares of the others, and an interval D around an outage admits, all instances together, at most
    ///
    /// - `rate · D` and three bursts of a bucket: one before the outage, one from the shares, and one after all instances
    ///   have returned. Without an outage it is one burst.
    /// - two limits in a fixed window, of which the shares admit one. If an instance does not see a key again, the tokens
    ///   that it has admitted alone for that key come on top.
    ///
    /// The bounds assume that `instances` is at most the smallest limit, burst and limit over cost, since no share is below 1,
    /// and that each instance has noticed the outage. An instance without requests during the outage can admit all that
    /// the backend allows, while others still return. An instance that alone cannot reach the backend admits its share
    /// beside what the backend admits for the others. One request per instance, its probe, is not charged to its share.
    ///
    /// # Errors
    ///
    /// Building fails with zero instances, and with policies of which a `Memory` cannot count the share: the error names the
    /// policy and the number of instances.
    Local {
        /// How many instances share the limits, at least 1. Limits and bursts are divided by it, rounded down, to at least 1;
        /// a burst, or a limit where there is no burst, to at least the policy's fixed [cost](crate::Policy::cost), so that requests
        /// can pass at all.
        instances: u32,
    },
}

impl FailureMode {
    pub(crate) fn check(self) -> Result<(), BuildError> {
        match self {
            Self::Local { instances: 0 } => Err(BuildError::new("instances", 0, "at least 1")),
            _ => Ok(()),
        }
    }
}

impl Default for FailureMode {
    fn default() -> Self {
        Self::Local { instances: 1 }
    }
}
