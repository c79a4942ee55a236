use std::{fmt, future::Future, slice, sync::Arc};

use crate::{
    BuildError, Decision, MissingKey, Policy, Quota,
    backend::{
        Answer, Backend, BackendError, Bounded, BoxFuture, Charge, DEADLINE, PolicyId, Verdict,
    },
    key::{IntoKey, KeySink},
    limits,
};

/// A limit without HTTP and without tower: the caller says who asks, and what it means to be refused.
///
/// Clones count in the same buckets. A key that is `None` is the one bucket of all who have no key.
///
/// # Errors
///
/// The methods fail if the store does, or does not answer within 50 ms. [`Memory`](crate::backend::Memory) does neither.
///
/// # Cancel safety
///
/// The store is asked when the future is first polled. Dropping the future after that does not take the question back.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
///
/// let limiter = Limiter::new(Memory::default(), Policy::new("mails", Quota::per_hour(100).burst(2)))?;
/// assert!(limiter.check("alice").await?.allowed);
/// assert!(limiter.check("alice").await?.allowed);
/// assert!(!limiter.check("alice").await?.allowed);
/// assert!(limiter.check("bob").await?.allowed);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Limiter {
    backend: Arc<dyn Backend>,
    policy: Arc<Policy>,
    id: PolicyId,
    cost: u64,
    quota: Option<Quota>,
}

impl Limiter {
    /// A limiter that keeps this policy in this store.
    ///
    /// # Errors
    ///
    /// A policy that cannot work (see [`Policy`]), that the store cannot keep, or that takes keys or costs from requests
    /// (`by`, `by_fn`, `by_str`, `cost_fn`, `dynamic`, `missing_key`): here the caller gives them.
    pub fn new(backend: impl Backend, policy: Policy) -> Result<Self, BuildError> {
        const BOUND: &str = "unset in a Limiter";
        let cost = policy.only_fixed(BOUND)?;
        if policy.missing_key != MissingKey::default() {
            return Err(BuildError::new("missing_key", "set", BOUND).in_policy(policy.name()));
        }
        let ids = limits::register(&backend, std::slice::from_ref(&policy))?;
        Ok(Self {
            backend: Arc::new(backend),
            policy: Arc::new(policy),
            id: ids[0],
            cost,
            quota: None,
        })
    }

    /// The same limiter, over the same buckets, with another quota: for keys that are allowed more, or less, than the policy
    /// says. It can be another one with every call.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let policy = Policy::new("mails", Quota::per_hour(100)).dynamic_quotas();
    /// let limiter = Limiter::new(Memory::default(), policy)?;
    /// let premium = limiter.with_quota(Quota::per_hour(1_000));
    /// assert!(premium.check("alice").await?.allowed);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// The policy needs [`dynamic_quotas`](Policy::dynamic_quotas). Without, or with a quota that the store cannot keep, the
    /// methods fail.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Self {
        Self {
            quota: Some(quota),
            ..self.clone()
        }
    }

    fn charge<'a>(&self, key: &'a [u8], cost: u64) -> Charge<'a> {
        Charge {
            quota: self.quota,
            ..Charge::new(self.id, key, cost)
        }
    }

    /// Takes the policy's cost (1 by default) out of the key's bucket, if it has as many.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn check(&self, key: impl IntoKey) -> impl Future<Output = Result<Decision, BackendError>> {
        self.acquire(key, self.cost)
    }

    /// Takes `cost` tokens out of the key's bucket, if it has as many.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn check_n(
        &self,
        key: impl IntoKey,
        cost: u64,
    ) -> impl Future<Output = Result<Decision, BackendError>> {
        self.acquire(key, cost)
    }

    /// Looks at the key's bucket and takes nothing: what is left of it, and when it is full again. This is the decision
    /// on a cost of zero, so it always allows.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn peek(&self, key: impl IntoKey) -> impl Future<Output = Result<Decision, BackendError>> {
        self.acquire(key, 0)
    }

    /// Puts back `tokens` that were taken and not used after all. The bucket never holds more than its burst.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn refund(&self, key: impl IntoKey, tokens: u64) -> Result<(), BackendError> {
        let delta = i64::try_from(tokens).map_or(i64::MIN, |tokens| -tokens);
        let answer = with_key(key, |key| {
            self.backend.settle(&[self.charge(key, tokens)], delta)
        });
        match answer {
            Answer::Done(_) => Ok(()),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => Bounded::new(DEADLINE, answer).await.map(|_| ()),
        }
    }

    /// Makes the key's bucket full.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn reset(&self, key: impl IntoKey) -> Result<(), BackendError> {
        let done = with_key(key, |key| self.backend.reset(self.id, key));
        Bounded::new(DEADLINE, done).await
    }

    async fn acquire(&self, key: impl IntoKey, cost: u64) -> Result<Decision, BackendError> {
        let mut out = Decision::default();
        let answer = with_key(key, |key| {
            let charge = self.charge(key, cost);
            self.backend
                .acquire(slice::from_ref(&charge), slice::from_mut(&mut out))
        });
        match answer {
            Answer::Done(_) => Ok(out),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => first(answer).await,
        }
    }
}

/// The decision that comes later, on the one charge that was made.
async fn first(
    answer: BoxFuture<'static, Result<Verdict, BackendError>>,
) -> Result<Decision, BackendError> {
    let Verdict { decisions, .. } = Bounded::new(DEADLINE, answer).await?;
    decisions
        .first()
        .copied()
        .ok_or_else(|| BackendError::new("an answer without a decision"))
}

/// The key's bytes live no longer than the question, so that no future has to carry them.
fn with_key<T>(key: impl IntoKey, ask: impl FnOnce(&[u8]) -> T) -> T {
    let mut sink = KeySink::new();
    sink.key(|sink| key.write(sink));
    ask(sink.bytes())
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}
