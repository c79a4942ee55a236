/// Who made a [`Decision`](crate::Decision). All decisions on a request have the same source.
///
/// The last three are [what was chosen](crate::FailureMode) for when the store does not decide.
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
// As wide as this, moving a decision takes no loads that have to wait for two stores.
#[repr(u32)]
#[non_exhaustive]
pub enum Source {
    /// The [`Backend`](crate::backend::Backend), which counts for all.
    #[default]
    Backend,
    /// The same, but not in one step: the policies' keys are on different servers of a Redis Cluster, or are different
    /// items in Memcached, and one policy rejected the request. The backend refunds the tokens of the other policies. Until it
    /// has, they can be missing to another request, which is then rejected too. See [`colocate`](crate::Policy::colocate).
    Parts,
    /// This process, with a [lease](crate::Consistency::Leased). What remains is what is left of that and what the store had when it was last
    /// asked, less what this process has asked for since. A rejection is due to a store that had too little a moment ago, and says when it is asked again.
    Lease,
    /// This process, by what it [believes](crate::Consistency::Eventual) that others have used. So are the numbers.
    Eventual,
    /// This process: the [`Backend`](crate::backend::Backend) has rejected no more a moment ago, and
    /// [would again](crate::RateLimitLayerBuilder::deny_cache). What remains is what remained then. For a request that costs more, of a window or a log,
    /// `retry_after` can be too short; else it is exact.
    DenyCache,
    /// This process alone, by [`FailureMode::Local`](crate::FailureMode::Local). The numbers are those of its share.
    Local,
    /// Nobody: it was let through by [`FailureMode::Open`](crate::FailureMode::Open). Nothing was taken, and what is left is not known; it
    /// is told as zero.
    Allowed,
    /// Nobody: it was rejected by [`FailureMode::Closed`](crate::FailureMode::Closed). What is left is not known; it is told as zero.
    Denied,
}

impl Source {
    /// Whether somebody has counted, so that there are numbers to tell of.
    pub(crate) fn has_counted(self) -> bool {
        !matches!(self, Self::Allowed | Self::Denied)
    }
}
