//! Backends: they keep the state of limits and decide.
//!
//! [`Memory`] keeps the state in this process. The docs of [`Backend`] list the promises of every backend.

mod answer;
#[cfg(feature = "cas")]
mod cas;
mod charge;
mod error;
mod memory;
mod registry;
mod timeout;
#[cfg(feature = "toolkit")]
#[cfg_attr(docsrs, doc(cfg(feature = "toolkit")))]
pub mod toolkit;

use std::{any::Any, sync::Arc};

pub use answer::{Answer, BoxFuture, JointDecision};
#[cfg(feature = "cas")]
#[cfg_attr(docsrs, doc(cfg(feature = "cas")))]
pub use cas::{CasBackend, CompareAndSwap};
pub(crate) use charge::OwnedCharge;
pub use charge::{Charge, PolicyId};
pub use error::BackendError;
#[cfg(feature = "metrics")]
pub(crate) use error::CircuitOpen;
pub use memory::Memory;
pub(crate) use memory::{NewStore, SinglePolicy, Store, any_store, bucket_store};
pub use registry::Registry;
pub(crate) use timeout::{DEFAULT_TIMEOUT, Timeout};

use crate::{BuildError, Decision, Policy};

/// A store of limits that decides on requests.
///
/// The trait is object safe, and not stable before 0.2. The conformance kit (feature `conformance`) checks most of the
/// promises in this table; each row names its check. A backend that decides with the [arithmetic](crate::arithmetic)
/// usually keeps the promises about decisions.
///
/// | promise | check |
/// |---|---|
/// | [`register`](Self::register) takes the policies that the backend supports, and rejects all others. An equal list of policies gets the same ids. | `building` |
/// | A successful answer to [`acquire`](Self::acquire), also a [`Later`](Answer::Later) one, has one decision per charge. The answer's value is `true` if all decisions are `allowed`. | every check |
/// | A decision has the quota's limit, the granted and the remaining tokens, and a leaky queue's delay. In a leaky queue, the remaining tokens are the free places. | `decisions` |
/// | If a request is allowed, each of its charges grants all free tokens up to [`up_to`](Charge::up_to), and at least its cost. A leaky queue grants only the cost. A charge of zero cost grants nothing, and neither does any charge of a rejected request. | `decisions` |
/// | `retry_after` is zero if allowed. It is `None` if a quota of zero rejects the charge. It is also `None` if the cost is above the burst, or above the limit of an algorithm without a burst. Otherwise it is exact: one nanosecond (or the clock's grain) earlier the same request is rejected. | `decisions`, `retry` |
/// | If a charge is decided by the [quota in force](Charge::quota), `reset_after` is the time until the key has no used tokens, for allowed and for rejected requests. | `decisions`, `expiry` |
/// | Unless a clock jumped back, a charge of zero cost leaves the state as it was, and a rejected charge changes only the key's [quota](Charge::quota). | `nothing written` |
/// | [`settle`](Self::settle) with a positive `delta` takes tokens even if too few are free; the key is then in debt. With a negative `delta` it returns at most the cost of each charge, and never more than the used tokens. A successful answer is `true` and has no decisions. | `refunds` |
/// | [`reset`](Self::reset) forgets the used tokens of one key under one policy, and of no other key. It also succeeds if the key has no state. | `reset` |
/// | A key is any bytes, from none to 64 KiB. Apart from collisions of hashes, no two keys share a state. | `keys` |
/// | Concurrent charges of cost 1 to one key, under one policy, together get at most the free tokens. If there are enough charges, the charges get all free tokens. | `racing` |
/// | [`acquire`](Self::acquire) makes all charges, or none. If a backend charges in [parts](crate::Source::Parts), and one part is rejected or fails, the backend refunds the parts that took tokens. If the request is rejected, the decision of a policy that would allow it alone is `allowed`, with nothing granted. | `all or nothing` |
/// | If a charge has a quota, and its cost and quota are above zero, the quota is in force until another charge changes it. Used tokens stay used. A charge with a cost above zero and no quota puts the policy's own quota in force. | `dynamic quotas` |
///
/// No check covers these promises:
///
/// - The caller may drop the future of [`Answer::Later`] at any time. A charge that is then in flight to a server may
///   stay charged.
/// - If the future of [`Answer::Later`] fails, the charges may have been made nevertheless. So the caller usually does
///   not send the request again.
/// - The future of [`Answer::Later`] needs no timeout of its own: layers and limiters wait for it at most for their
///   [`backend_timeout`](crate::RateLimitLayerBuilder::backend_timeout).
pub trait Backend: Any + Send + Sync {
    /// Returns the maximum number of policies that one `acquire` decides together. Building a layer or limiter with
    /// more fails.
    ///
    /// # Default
    ///
    /// 16.
    fn max_policies(&self) -> usize {
        16
    }

    /// Returns whether a decision takes a round trip to a server.
    ///
    /// A backend that returns `false` has to answer immediately and without failures, as [`Memory`] does. A limit over
    /// such a backend has no [deny cache](crate::RateLimitLayerBuilder::deny_cache), and usually no circuit breaker. If
    /// the backend fails or answers [`Later`](Answer::Later) nevertheless, the limit usually rejects the request. With
    /// [`FailureMode::Open`](crate::FailureMode::Open) the request usually passes.
    ///
    /// # Default
    ///
    /// `true`. It also works for a backend that answers immediately: a deny cache holds only answers that came
    /// [`Later`](Answer::Later).
    ///
    /// # Cost
    ///
    /// `true` adds about 70 kB to a binary: the code that handles failures.
    fn is_remote(&self) -> bool {
        true
    }

    /// Prepares a set of policies that are decided together. Returns an id for each, in the same order.
    ///
    /// A set that is equal to a registered one gets the same ids.
    ///
    /// # Errors
    ///
    /// For example, a policy that this backend does not support, or an invalid setting of the backend. Then no policy
    /// is registered.
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError>;

    /// Makes all charges, or none. The charges belong to policies of one `register` call, at most one to each policy.
    ///
    /// `out` has one decision per charge. A backend that returns [`Answer::Done`] has written all of them.
    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer;

    /// Corrects charges: takes `delta` more tokens for each charge, even if fewer are free. A backend may stop at the
    /// largest number that it can count. A negative `delta` returns tokens, at most the cost of each charge.
    ///
    /// A successful answer is `true` and has no decisions.
    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer;

    /// Forgets the used tokens of a key under a policy.
    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>>;
}

/// A shared backend: for several layers, for a layer and a [`Limiter`](crate::Limiter), or chosen at run time.
///
/// Layers and limiters over one backend share their counts if their sets of policies are equal. Give policies different
/// names if their counts must be separate.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use tower_dist_ratelimit::backend::{Backend, Memory};
/// use tower_dist_ratelimit::{Limiter, Policy, Quota};
///
/// let backend: Arc<dyn Backend> = Arc::new(Memory::default());
/// let limiter = |name: &str| Limiter::new(Arc::clone(&backend), Policy::new(name, Quota::per_hour(1)));
/// let (reads, same, writes) = (limiter("reads")?, limiter("reads")?, limiter("writes")?);
/// assert!(reads.check("alice").await?.allowed);
/// assert!(!same.check("alice").await?.allowed);
/// assert!(writes.check("alice").await?.allowed);
/// # Ok(())
/// # }
/// ```
impl<T: Backend + ?Sized> Backend for Arc<T> {
    fn max_policies(&self) -> usize {
        (**self).max_policies()
    }

    #[inline]
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
