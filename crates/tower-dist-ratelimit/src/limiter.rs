mod builder;
mod check;

use std::{
    fmt,
    future::{Future, poll_fn},
    ops::Range,
    sync::Arc,
};

use smallvec::SmallVec;

pub use self::builder::LimiterBuilder;
use self::check::Check;
use crate::{
    BuildError, Decided, Decision, Policy, Quota, Source,
    backend::{Answer, Backend, BackendError, Bounded, Charge},
    key::{IntoKey, KeySink},
    ladder::Instead,
    limits::{Applies, Limits, Outcome, Question, Quoted, Rule},
};

/// A limit without HTTP and without tower: the caller says who asks, and what it means to be rejected.
///
/// Clones count in the same buckets. A key that is `None` is the one bucket of all who have no key.
///
/// When the store fails or is late, this process decides instead, unless something else [is
/// chosen](LimiterBuilder::failure_mode). What is decided can be [observed](LimiterBuilder::observer), and
/// [tried out](LimiterBuilder::shadow) without rejecting anything.
///
/// What costs are known of afterwards is corrected with [`charge`](Self::charge) and [`refund`](Self::refund).
///
/// # Errors
///
/// The methods that decide fail if the store does, or does not answer within 50 ms, and [`FailureMode::Closed`](crate::FailureMode::Closed)
/// is chosen for that; and with a [quota](Self::with_quota) that cannot be. [`refund`](Self::refund) and
/// [`reset`](Self::reset) fail if the store does. [`Memory`](crate::backend::Memory) never fails.
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
    limits: Arc<Limits>,
    quota: Option<Quota>,
}

impl Limiter {
    /// A limiter that keeps this policy in this store.
    ///
    /// # Errors
    ///
    /// A policy that cannot work (see [`Policy`]), that the store cannot keep, or that takes keys or costs from requests
    /// (`by`, `by_fn`, `by_str`, `cost_fn`, `quota_by`, `missing_key`): here the caller gives them.
    pub fn new(backend: impl Backend, policy: Policy) -> Result<Self, BuildError> {
        Self::builder(backend, policy).build()
    }

    /// A limiter that is told what to do when the store fails.
    pub fn builder(backend: impl Backend, policy: Policy) -> LimiterBuilder {
        LimiterBuilder::new(Arc::new(backend), policy)
    }
}

impl Limiter {
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

    /// How a policy applies to a request of this key and this cost, if it is not the policy's own.
    #[inline]
    fn applies(&self, rule: &Rule, key: Range<usize>, cost: Option<u64>) -> Applies {
        Applies::To {
            key,
            cost: cost.unwrap_or(rule.policy.cost),
            quota: match self.quota {
                None => Quoted::Own,
                quota => Quoted::Found(quota),
            },
        }
    }

    /// The charges of this many tokens to a key, with the numbers of their policies.
    fn charges<'a>(&self, sink: &'a KeySink, tokens: u64) -> SmallVec<[(usize, Charge<'a>); 2]> {
        let rules = self.limits.rules.iter().enumerate();
        let charges = rules.map(|(number, rule)| {
            let charge = Charge::new(rule.id, sink.bytes(), tokens);
            let quota = self.quota;
            (number, Charge { quota, ..charge })
        });
        charges.collect()
    }

    /// Takes the policy's cost (1 by default) out of the key's bucket, if it has as many.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn check(&self, key: impl IntoKey) -> impl Future<Output = Result<Decision, BackendError>> {
        Check::new(self, key, None)
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
        Check::new(self, key, Some(cost))
    }

    /// Looks at the key's bucket and takes nothing: what is left of it, and when it is full again. This is the decision
    /// on a cost of zero, so it always allows.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    ///
    /// An observer is not told of it, but of what the store does.
    pub async fn peek(&self, key: impl IntoKey) -> Result<Decision, BackendError> {
        self.check_quota()?;
        let limits = &*self.limits;
        let mut question = {
            let mut sink = KeySink::new();
            let _ = sink.key(|sink| key.write(sink));
            Box::new(Question::of(sink))
        };
        let place = 0..question.keys().len();
        let look = |_, rule: &Rule, _: &mut KeySink| self.applies(rule, place.clone(), Some(0));
        let outcome = match limits.decide_together(&mut question, look) {
            Outcome::Later(mut waiting) => {
                poll_fn(|cx| waiting.poll(limits, &mut question, cx)).await
            }
            outcome => outcome,
        };
        match outcome {
            Outcome::Reject(_) if !limits.shadow => rejected(limits, &mut question),
            _ => allowed(&Decided::new(&limits.rules, &question)),
        }
    }

    /// Takes `tokens` more than were checked for, also when they are not there: then what follows waits longer. For what is
    /// found to have cost more than was thought.
    ///
    /// While the store is not asked they are taken out of the bucket of this process, if there is one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let limiter = Limiter::new(Memory::default(), Policy::new("tokens", Quota::per_second(10)))?;
    /// assert!(limiter.check_n("alice", 5).await?.allowed);
    /// // It were 25.
    /// limiter.charge("alice", 20).await?;
    /// let rejected = limiter.check("alice").await?;
    /// assert_eq!(rejected.retry_after, Some(Duration::from_millis(1600)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn charge(&self, key: impl IntoKey, tokens: u64) -> Result<(), BackendError> {
        let delta = i64::try_from(tokens).unwrap_or(i64::MAX);
        self.correct(key, tokens, delta).await
    }

    /// Puts back `tokens` that were taken and not used after all. The bucket never holds more than its burst. With windows put nothing
    /// back when the one is over in which it was taken: it would be the next one's.
    ///
    /// While the store is not asked they go to the bucket of this process, if there is one.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn refund(&self, key: impl IntoKey, tokens: u64) -> Result<(), BackendError> {
        let delta = i64::try_from(tokens).map_or(i64::MIN, |tokens| -tokens);
        self.correct(key, tokens, delta).await
    }

    async fn correct(
        &self,
        key: impl IntoKey,
        tokens: u64,
        delta: i64,
    ) -> Result<(), BackendError> {
        let limits = &*self.limits;
        let source = match limits.ladder.instead {
            Instead::Decide(_) if limits.ladder.shut_for().is_some() => Source::Local,
            _ => Source::Backend,
        };
        let answer = {
            let mut sink = KeySink::new();
            let _ = sink.key(|sink| key.write(sink));
            limits.settle(source, &self.charges(&sink, tokens), delta)
        };
        match answer {
            Answer::Done(_) => Ok(()),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => Bounded::new(limits.timeout, answer).await.map(|_| ()),
        }
    }

    /// Makes the key's bucket full, also that of this process for when the store fails.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn reset(&self, key: impl IntoKey) -> Result<(), BackendError> {
        let limits = &*self.limits;
        let done = {
            let mut sink = KeySink::new();
            let _ = sink.key(|sink| key.write(sink));
            let charges = self.charges(&sink, 0);
            if let Instead::Decide(fallback) = &limits.ladder.instead {
                for (number, charge) in &charges {
                    fallback.reset(*number, charge.key);
                }
            }
            if limits.ladder.shut_for().is_some() {
                return Err(BackendError::circuit_open());
            }
            let resets = charges.iter();
            let resets = resets.map(|(_, charge)| limits.backend.reset(charge.policy, charge.key));
            resets.collect::<SmallVec<[_; 1]>>()
        };
        let all = async {
            for one in done {
                one.await?;
            }
            Ok(())
        };
        Bounded::new(limits.timeout, Box::pin(all)).await
    }

    /// Gives back what is left of [leases](crate::Consistency::Leased), when this instance is shut down: else it is lost when they end,
    /// which matters to quotas of hours and days.
    ///
    /// A bucket gets back what is left but for as many tokens as it gains in a lease time and the deadline, so that the bound of leases
    /// holds. Nothing is given back of windows and logs, nor of keys of more than 1,000 bytes. Of no effect without leases. Requests can go
    /// on, and lease again.
    ///
    /// # Errors
    ///
    /// If the store fails or is late: what could not be given back is lost.
    ///
    /// # Cancel safety
    ///
    /// What was not sent is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, Consistency, backend::Memory};
    ///
    /// let limiter = Limiter::builder(Memory::default(), Policy::new("mails", Quota::per_day(1_000)))
    ///     .consistency(Consistency::leased())
    ///     .build()?;
    /// assert!(limiter.check("alice").await?.allowed);
    /// limiter.return_leases().await?;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn return_leases(&self) -> Result<(), BackendError> {
        self.limits.return_leases().await
    }

    /// What would be rejected by any store, and says nothing about this one.
    #[cold]
    fn check_quota(&self) -> Result<(), BackendError> {
        let Some(quota) = self.quota else {
            return Ok(());
        };
        let mut rules = self.limits.rules.iter();
        if !rules.all(|rule| rule.policy.has_dynamic_quotas()) {
            return Err(BackendError::new(
                "a quota of its own to a policy without dynamic_quotas",
            ));
        }
        if quota.limit() == 0 || quota.burst_size() == 0 {
            return Ok(());
        }
        quota.check().map_err(BackendError::new)
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.limits)
            .finish_non_exhaustive()
    }
}

/// The decision on a request that passes, also one that only a shadow lets pass.
fn allowed(decided: &Decided<'_>) -> Result<Decision, BackendError> {
    let tightest = decided.tightest();
    let (_, decision) =
        tightest.ok_or_else(|| BackendError::new("an answer without a decision"))?;
    Ok(Decision {
        allowed: true,
        ..*decision
    })
}

/// The decision on a rejected request.
fn rejected(limits: &Limits, question: &mut Question) -> Result<Decision, BackendError> {
    if let Some(error) = question.cause.take() {
        return Err(error);
    }
    let tightest = Decided::new(&limits.rules, question).tightest();
    let tightest = tightest.map(|(_, decision)| *decision);
    tightest.ok_or_else(|| BackendError::new("an answer without a decision"))
}
