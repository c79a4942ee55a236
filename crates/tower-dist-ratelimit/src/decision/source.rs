/// The origin of a [`Decision`](crate::Decision). All decisions of one layer or limiter on a request have the same
/// source.
///
/// The last three variants come from the [failure modes](crate::FailureMode). A failure mode can make the decision
/// after a late quota look-up, while the backend fails, and for a short time after a failure of the backend.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, Source, backend::Memory};
///
/// let limiter = Limiter::new(Memory::default(), Policy::new("mails", Quota::per_hour(100)))?;
/// assert_eq!(limiter.check("alice").await?.source, Source::Backend);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// 32 bits wide, so that a copy of a decision loads this field alone. A load of two fields that were stored just before
// would have to wait for both stores.
#[repr(u32)]
#[non_exhaustive]
pub enum Source {
    /// The [`Backend`](crate::backend::Backend), which counts for all its users. Also the source of a rejection by a
    /// quota of zero. Layers and limiters make this decision without a call to the backend, and all its numbers are
    /// zero.
    #[default]
    Backend,
    /// The backend, in several steps. At least one policy rejected the request. Usually the policies' keys are in
    /// different slots of a Redis Cluster, or in different values of Memcached or a `CasBackend`. The backend tries to
    /// refund the tokens that the other policies took. Before the refund, these tokens can be missing for other
    /// requests. See [`colocate`](crate::Policy::colocate).
    Parts,
    /// This process, with a [lease](crate::Consistency::Leased). `remaining` is an estimate: the unused leased tokens,
    /// and for an allowed request also the tokens that probably remain in the backend. A rejection means that the
    /// backend recently had too few tokens. `retry_after` is then usually the time until this process requests more
    /// leased tokens. If the wait that the backend reported ends later, `retry_after` is the rest of that wait.
    Lease,
    /// This process, with an [estimate](crate::Consistency::Eventual) of the usage of all instances. So `remaining`,
    /// `retry_after` and `reset_after` are estimates, too.
    Eventual,
    /// This process, with a [cached rejection](crate::RateLimitLayerBuilder::deny_cache). The backend recently rejected
    /// a request with the same keys and at most the same cost. It would usually reject this request, too.
    ///
    /// `remaining` comes from the cached rejection. `retry_after` can be too long, usually by at most the time that the
    /// backend's answer took. Under a window or a log, `retry_after` can be too short if this request costs more than
    /// the rejected request.
    DenyCache,
    /// This process without the backend, by [`FailureMode::Local`](crate::FailureMode::Local). The numbers refer to
    /// this process's share of the quota.
    Local,
    /// No counter: [`FailureMode::Open`](crate::FailureMode::Open) allowed the request. A late backend may have charged
    /// it nevertheless. `remaining` and `reset_after` are unknown and reported as zero.
    Allowed,
    /// No counter: the request was rejected, usually by [`FailureMode::Closed`](crate::FailureMode::Closed). A late
    /// backend may have charged it nevertheless. `remaining` and `reset_after` are unknown and reported as zero.
    Denied,
}

impl Source {
    /// Returns `false` if a [failure mode](crate::FailureMode) decided without a counter.
    pub(crate) fn has_counted(self) -> bool {
        !matches!(self, Self::Allowed | Self::Denied)
    }
}
