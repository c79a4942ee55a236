//! Backends: they keep the state of limits and decide.
//!
//! [`Memory`] keeps the state in this process. The docs of [`Backend`] say how to write another one.

mod answer;
mod bounded;
#[cfg(feature = "cas")]
mod cas;
mod charge;
mod error;
mod memory;
mod registry;
#[cfg(feature = "toolkit")]
#[cfg_attr(docsrs, doc(cfg(feature = "toolkit")))]
pub mod toolkit;

use std::{any::Any, sync::Arc};

pub use answer::{Answer, BoxFuture, JointDecision};
pub(crate) use bounded::{Bounded, DEADLINE};
#[cfg(feature = "cas")]
#[cfg_attr(docsrs, doc(cfg(feature = "cas")))]
pub use cas::{CasBackend, CompareAndSwap};
pub(crate) use charge::OwnedCharge;
pub use charge::{Charge, PolicyId};
pub use error::BackendError;
#[cfg(feature = "metrics")]
pub(crate) use error::CircuitOpen;
pub(crate) use memory::Alone;
pub use memory::Memory;
pub use registry::Registry;

use crate::{BuildError, Decision, Policy};

/// A store of limits that decides on requests.
///
/// The trait is object safe, and not stable before 0.2. The kit in `conformance` (a feature) checks the promises below;
/// each row names its check. The [arithmetic](crate::arithmetic) decides as they say.
///
/// | promise | check |
/// |---|---|
/// | [`register`](Self::register) takes the policies that the backend supports, and rejects all others. | `building` |
/// | A decision has the quota's limit, the granted and the remaining tokens, and a leaky queue's delay. | `decisions` |
/// | A charge grants at least its cost and at most [`up_to`](Charge::up_to), of the free tokens. | `decisions` |
/// | `retry_after` is zero if allowed, and `None` if the cost is above the burst. Otherwise it is exact: one nanosecond (or the clock's grain) earlier the same request is rejected. | `decisions`, `retry` |
/// | `reset_after` is the time until nothing counts, of allowed and of rejected requests. After it the key is as good as unused. | `decisions`, `expiry` |
/// | A charge of zero cost writes nothing. A rejected charge writes only a change of the key's [quota](Charge::quota). | `nothing written` |
/// | [`settle`](Self::settle) with a positive `delta` takes tokens even if there are fewer, as a debt. With a negative one it returns at most a charge's cost, up to a full quota. | `refunds` |
/// | [`reset`](Self::reset) forgets one key and no other. | `reset` |
/// | A key is any bytes, from none to 64 KiB. No two keys share a state. | `keys` |
/// | Concurrent requests get exactly the free tokens. | `racing` |
/// | [`acquire`](Self::acquire) is one atomic step: it makes all charges, or none. In a rejected set, the decision of a policy without a shortage is `allowed`, with nothing granted. | `all or nothing` |
/// | A charge's quota holds from then on, and used tokens stay used. The next charge without a quota has the policy's own. | `dynamic quotas` |
///
/// No check covers these promises:
///
/// - An answer that comes [`Later`](Answer::Later) is not retried, and the caller may drop it at any time. A request that is
///   in flight to a server then stays charged.
/// - Answers need no timeout of their own: a caller waits at most its
///   [`backend_timeout`](crate::RateLimitLayerBuilder::backend_timeout).
pub trait Backend: Any + Send + Sync {
    /// Returns the maximum number of policies that one `acquire` decides together. Building a limiter with more fails.
    ///
    /// # Default
    ///
    /// 16.
    fn max_policies(&self) -> usize {
        16
    }

    /// Returns whether a decision takes a round trip, so that a [deny cache](crate::RateLimitLayerBuilder::deny_cache)
    /// saves time.
    ///
    /// # Default
    ///
    /// `true`. The cache holds only answers that came [`Later`](Answer::Later).
    fn is_remote(&self) -> bool {
        true
    }

    /// Prepares a set of policies that are decided together. Returns an id for each, in the same order.
    ///
    /// A set that is equal to a registered one gets the same ids.
    ///
    /// # Errors
    ///
    /// A policy with a name, quota or algorithm that this backend does not support. Then none is registered.
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError>;

    /// Makes all charges, or none. They belong to policies of one `register` call, each policy at most once.
    ///
    /// `out` has one place per charge. [`Answer::Done`] means that all decisions are written there.
    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer;

    /// Corrects charges: takes `delta` more tokens for each, even if there are fewer. A negative `delta` returns
    /// tokens, at most the cost of each charge.
    ///
    /// The verdict has no decisions and is `true`.
    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer;

    /// Forgets the used tokens of a key under a policy.
    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>>;
}

/// A shared backend: for several layers, for a layer and a [`Limiter`](crate::Limiter), or chosen at run time.
///
/// Over one backend, equal sets of policies are one set: limiters with equal sets share their counts. Give limits that
/// must not share counts different names.
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
    fn max_policies(&self) -> usize {
        (**self).max_policies()
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
