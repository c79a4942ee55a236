//! Where the state of limits is kept, and who decides on it.
//!
//! [`Memory`] keeps it in this process. Others can be written: see [`Backend`].

mod answer;
mod bounded;
#[cfg(feature = "cas")]
mod cas;
mod charge;
mod error;
mod memory;
pub mod toolkit;

use std::{any::Any, sync::Arc};

pub use answer::{Answer, BoxFuture, JointDecision};
pub(crate) use bounded::{Bounded, DEADLINE};
#[cfg(feature = "cas")]
#[cfg_attr(docsrs, doc(cfg(feature = "cas")))]
pub use cas::{CasBackend, CompareAndSwap};
pub use charge::{Charge, PolicyId};
pub use error::BackendError;
#[cfg(feature = "metrics")]
pub(crate) use error::CircuitOpen;
pub(crate) use memory::Alone;
pub use memory::Memory;

use crate::{BuildError, Decision, Policy};

/// A store of limits that decides on requests.
///
/// Object safe; not stable before 0.2. The kit in `conformance` (a feature) checks the promises below; each row names
/// its check. The [arithmetic](crate::arithmetic) decides as they say.
///
/// | promise | check |
/// |---|---|
/// | [`register`](Self::register) takes the policies that the backend supports, and rejects all others. | `building` |
/// | A decision has the quota's limit, the tokens granted and remaining, and a leaky queue's delay. | `decisions` |
/// | A charge grants at least its cost and at most [`up_to`](Charge::up_to), of the tokens that are there. | `decisions` |
/// | `retry_after` is zero if allowed, `None` if the cost is above the burst, and else exact: one nanosecond (or the clock's grain) earlier the same request is rejected. | `decisions`, `retry` |
/// | `reset_after` is the time until nothing counts any more, of allowed and of rejected requests; then the key is as new. | `decisions`, `expiry` |
/// | A rejected request and one of zero cost write nothing, but the change of the key's [quota](Charge::quota) if it is rejected. | `nothing written` |
/// | [`settle`](Self::settle) takes tokens that are not there, as a debt; it puts back at most a charge's cost, and never beyond full. | `refunds` |
/// | [`reset`](Self::reset) forgets one key and no other. | `reset` |
/// | Any bytes up to 64 KiB are a key, also none; no two keys share a state. | `keys` |
/// | Concurrent requests get exactly the tokens that are there. | `racing` |
/// | [`acquire`](Self::acquire) is one atomic step over all its charges: all are made, or none. A policy that would have allowed a rejected set says `allowed`, with nothing granted. | `all or nothing` |
/// | A charge's quota holds from then on; used tokens stay used; the next charge without one has the policy's own. | `dynamic quotas` |
///
/// No check covers these:
///
/// - An answer that comes [`Later`](Answer::Later) is not repeated and may be dropped at any time. A request that is in flight to
///   a server then stays charged.
/// - Answers need no timeout of their own: callers wait at most their
///   [`backend_timeout`](crate::RateLimitLayerBuilder::backend_timeout).
pub trait Backend: Any + Send + Sync {
    /// What this backend can do; asked once, by those who build a limiter.
    fn capabilities(&self) -> Capabilities;

    /// Whether it takes a round trip to decide, so that [rejections are worth remembering](crate::RateLimitLayerBuilder::deny_cache).
    ///
    /// # Default
    ///
    /// `true`. Only answers that come [`Later`](Answer::Later) are remembered.
    fn is_remote(&self) -> bool {
        true
    }

    /// Prepares a set of policies that are decided together, and names each for the calls to come, in the same order.
    /// Returns the same names for a set that is equal to one that was prepared before.
    ///
    /// # Errors
    ///
    /// A policy that this backend cannot keep: its name, quota or algorithm. Then none is prepared.
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError>;

    /// Makes all the charges, or none. They belong to policies of one `register` call, each policy at most once.
    ///
    /// `out` has one place per charge. [`Answer::Done`] means that all are written.
    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer;

    /// Corrects charges after the fact: takes `delta` more tokens for each, also when they are not there, so that what
    /// follows waits longer; or, when negative, puts them back, of each charge at most its cost.
    ///
    /// The verdict has no decisions and is `true`.
    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer;

    /// Forgets what a key has used of a policy.
    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>>;
}

/// A shared backend: one store for several layers, or for a layer and a [`Limiter`](crate::Limiter), and one that is
/// chosen at run time.
///
/// Over one backend, equal sets of policies are one set: limiters that are built with them share their counts. Limits that
/// are not to share them have different names.
///
/// ```
/// use std::sync::Arc;
/// use tower_dist_ratelimit::backend::{Backend, Memory};
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer};
///
/// let backend: Arc<dyn Backend> = Arc::new(Memory::default());
/// let reads = Policy::new("reads", Quota::per_second(100));
/// let reads = RateLimitLayer::builder(Arc::clone(&backend)).limit(reads).build()?;
/// let writes = Policy::new("writes", Quota::per_second(10));
/// let writes = RateLimitLayer::builder(backend).limit(writes).build()?;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
impl<T: Backend + ?Sized> Backend for Arc<T> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn is_remote(&self) -> bool {
        (**self).is_remote()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        (**self).register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        (**self).acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        (**self).settle(charges, delta)
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        (**self).reset(policy, key)
    }
}

/// What a [`Backend`] can do.
///
/// ```
/// use tower_dist_ratelimit::backend::{Backend, Memory};
///
/// assert_eq!(Memory::default().capabilities().max_policies, 16);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// The most policies that one `acquire` can decide together, all or nothing. Building a limiter with more fails.
    pub max_policies: usize,
}
