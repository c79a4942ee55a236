use crate::{BuildError, build_error::ensure};

/// The way to decide a request without the backend. It usually applies in these cases:
///
/// - The backend fails or exceeds its [timeout](crate::RateLimitLayerBuilder::backend_timeout).
/// - A [quota look-up](crate::Policy::quota_by_async) exceeds the same timeout.
/// - The circuit breaker is open.
///
/// A layer over [`Memory`](crate::backend::Memory) needs the failure mode only for a late quota look-up. In such a
/// layer, the mode [`Local`](Self::Local) does not divide the quotas by the number of instances, unless a
/// [consistency](crate::RateLimitLayerBuilder::consistency) is set.
///
/// These rules apply to failures:
///
/// - A request waits at most the timeout for an answer of the backend. After a failure, the request is not sent to the
///   backend again, because a late backend may have charged it already. An exception is a
///   [`Throttle`](crate::Throttle): if a local decision rejects its request, the throttle queries the backend again
///   when the request's turn comes.
/// - The circuit opens after five consecutive failures. Failures of requests that were in flight together usually count
///   as one of these five, because one lost connection can fail them all. A failure also opens the circuit if at least
///   ten queries ended in about the last second and at least half of them failed. Here each failure counts, so one lost
///   connection with ten requests in flight can open the circuit.
/// - While the circuit is open, normally one request at a time probes the backend. The first probe is the first request
///   after a pause of 50 to 100 ms. While probes fail, the pauses double on average, up to 2 s. With a timeout above 50
///   ms, the first pause is one to two timeouts. With a timeout above 1 s, every pause is one to two timeouts.
/// - The first successful probe closes the circuit.
///
/// Each [`Decision`](crate::Decision) names its [`source`](crate::Decision::source). With the `tracing` feature, the
/// layer or limiter logs when the circuit opens and when it closes. It does not log each request that the backend fails
/// to decide, but reports each of them to the [observer](crate::Event::BackendFailed).
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
/// // Twelve instances: each admits a twelfth of the limit while the backend fails.
/// let layer = RateLimitLayer::builder(store)
///     .limit(Policy::new("per-client", Quota::per_minute(600)).by(key::header("x-api-key")))
///     .failure_mode(FailureMode::Local { instances: 12 })
///     .build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FailureMode {
    /// Allows the request without a limit. Use it for limits that may lapse during an outage.
    Open,
    /// Rejects the request: by default, in HTTP with 503, in gRPC with `UNAVAILABLE`. A check of a
    /// [`Limiter`](crate::Limiter) without [shadow](crate::LimiterBuilder::shadow) mode fails with a
    /// [`BackendError`](crate::backend::BackendError). Use it for limits that must never be exceeded, such as limits on
    /// logins or spending.
    Closed,
    /// Decides in this process, with a [`Memory`](crate::backend::Memory). The `Memory` has the layer's policies and
    /// keys, with a share of each quota: usually the quota divided by the number of instances. In the `Memory`, a fixed
    /// window starts with a key's first request. By default, rejections in HTTP are 503 with the problem type
    /// `temporary-reduced-capacity`, because the client may be within the whole limit.
    ///
    /// Without the backend, a client whose requests are spread unevenly over the instances can be rejected before it
    /// has used its whole quota. When the backend fails, keys usually start with their full share.
    ///
    /// A second `Memory` counts the tokens to charge to the backend after the outage. Each of the two has room for
    /// 100,000 keys per policy and takes a few kilobytes while unused.
    ///
    /// # After an outage
    ///
    /// An instance returns to the backend when its own circuit closes, so instances return at different times. For 5 s
    /// after its circuit closes, an instance normally admits only requests that both the backend and its share allow.
    /// With a `backend_timeout` above 1 s, the 5 s become 3 s plus two timeouts.
    ///
    /// After its return, an instance also charges the backend for the tokens that it recently admitted without the
    /// backend. It makes this charge with a later request for the same key. A leaky queue gets no such charge. Both the
    /// share and this charge keep a returned instance from using the full rate of the backend while other instances
    /// still admit their shares.
    ///
    /// In an interval D around an outage, all instances together admit at most:
    ///
    /// - for a bucket, `rate · D` plus three bursts: one before the outage, one from the shares, and one after all
    ///   instances have returned. Without an outage, the bound is `rate · D` plus one burst.
    /// - for a fixed window, twice the limit in each of the backend's windows: once by the backend and once by the
    ///   shares. If an instance gets no further request for a key, it never charges the backend for the tokens that it
    ///   has admitted without the backend. The bound is then higher by these tokens.
    ///
    /// The bounds assume [`Consistency::Exact`](crate::Consistency::Exact), and that at most `instances` instances run.
    /// They also assume that each limit is at least `instances`, and that each burst is at least `instances` times the
    /// policy's fixed cost. For a fixed window, they assume that the limit is at least `instances` times that cost.
    /// Otherwise the shares can add up to more than the quota. The bounds do not cover some cases, such as these:
    ///
    /// - An instance without requests during the outage can admit all requests that the backend allows, while others
    ///   still return.
    /// - If an outage affects only some instances, their shares add to the requests that the backend admits for the
    ///   others. The shares of an instance also add to these requests if it returns more than 5 s (or 3 s plus two
    ///   timeouts) after the first instance that returned.
    /// - One request per instance, its probe, is not charged to its share.
    ///
    /// # Errors
    ///
    /// Building fails with zero instances. If the backend is remote or a consistency is set, building also fails with
    /// more than 16 policies, and with a policy whose share a `Memory` cannot count. The error about a share names the
    /// policy and the number of instances.
    Local {
        /// The number of instances that share the limits, at least 1. Limits and bursts are divided by this number and
        /// rounded down, to at least 1. So that requests can pass, the burst of a share is at least the policy's fixed
        /// [cost](crate::Policy::cost), but never above the whole burst. The same holds for the limit of an algorithm
        /// without a burst.
        instances: u32,
    },
}

impl FailureMode {
    pub(crate) fn check(self) -> Result<(), BuildError> {
        ensure!(self != Self::Local { instances: 0 }, "instances" is 0, "at least 1");
        Ok(())
    }
}

impl Default for FailureMode {
    fn default() -> Self {
        Self::Local { instances: 1 }
    }
}
