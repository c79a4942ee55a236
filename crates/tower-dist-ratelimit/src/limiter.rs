mod builder;
mod check;

use std::{fmt, future::poll_fn, sync::Arc};

use smallvec::SmallVec;

pub use self::builder::LimiterBuilder;
use self::check::{CheckFuture, DecisionResult};
use crate::{
    BuildError, Decided, Decision, FailureMode, Policy, Quota, Source,
    backend::{Answer, Backend, BackendError, Charge, Timeout},
    key::{IntoKey, KeySink},
    limits::{Applies, Check, Limits, Outcome, PolicyCharge, Rule, Settings},
};

/// A limit for code without HTTP and tower. The caller passes the key and handles the decision.
///
/// Clones share the counts. A key can be `None`, or a tuple that contains `None`. All such keys share one count.
///
/// While the backend fails or is late, the [failure mode](LimiterBuilder::failure_mode) usually decides. By default,
/// the limiter then decides without the backend. [`charge`](Self::charge) and [`refund`](Self::refund) correct costs
/// that are known later.
///
/// # Errors
///
/// A check can fail because of the backend if the failure mode is [`FailureMode::Closed`](crate::FailureMode::Closed).
/// A check of a limiter from [`with_quota`](Self::with_quota) fails if the quota is invalid, or if a policy has no
/// [dynamic quotas](Policy::dynamic_quotas). [`charge`](Self::charge), [`refund`](Self::refund) and
/// [`reset`](Self::reset) can fail if the backend fails or times out. With [`Memory`](crate::backend::Memory), all
/// errors come from a quota of [`with_quota`](Self::with_quota).
///
/// # Panics
///
/// With a remote backend, a future that has to wait panics if no tokio runtime with a timer is running.
///
/// # Cancel safety
///
/// A future does nothing before its first poll. If it is dropped after that, its charge can stay.
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
    /// Creates a limiter with one policy and default settings.
    ///
    /// # Errors
    ///
    /// Fails if the policy is invalid (see [`Policy`]), or if the backend does not support the policy. Fails if the
    /// policy has a setting for requests: `by`, `by_fn`, `by_str`, `cost_fn`, `quota_by`, `quota_by_async`, `only_if`
    /// or `missing_key`.
    pub fn new(backend: impl Backend, policy: Policy) -> Result<Self, BuildError> {
        Self::builder(backend, policy).build()
    }

    /// Returns a builder, for more policies or settings.
    pub fn builder(backend: impl Backend, policy: Policy) -> LimiterBuilder {
        LimiterBuilder {
            settings: Settings::new(backend),
            policies: vec![policy],
        }
    }

    /// Returns this limiter with another quota and the same counts, for keys whose quota differs from the policy's.
    /// Calls for the same key can use different quotas.
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
    /// With a window or log algorithm, `quota` replaces only the policy's limit. The policy's window stays in force.
    ///
    /// All policies of the limiter need [`dynamic_quotas`](Policy::dynamic_quotas). Otherwise checks fail, and
    /// [`charge`](Self::charge) and [`refund`](Self::refund) usually fail, too. A quota with a limit or burst of zero
    /// rejects every check. With any other quota, a check fails if the quota's window is zero or above 100 years. A
    /// quota that the backend cannot count is usually replaced by the nearest quota that the backend can count.
    #[must_use]
    pub fn with_quota(&self, quota: Quota) -> Self {
        Self {
            quota: Some(quota),
            ..self.clone()
        }
    }

    /// Returns a function that fills in the charges. All policies count the same key. If `cost` is `None`, each policy
    /// uses its own cost.
    #[inline]
    fn apply<K: IntoKey>(
        &self,
        key: K,
        cost: Option<u64>,
    ) -> impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies {
        let (mut key, mut place) = (Some(key), 0..0);
        move |_, sink, asked| {
            if let Some(key) = key.take() {
                place = sink.key(|sink| key.write(sink)).0;
            }
            asked.key = place.clone();
            if let Some(cost) = cost {
                asked.cost = cost;
            }
            if let Some(quota) = self.quota {
                asked.quota = quota.usable();
            }
            Applies::Yes
        }
    }

    /// Returns one charge per policy, with the index of the policy.
    fn charges<'a>(&self, sink: &'a KeySink, tokens: u64) -> SmallVec<[(usize, Charge<'a>); 2]> {
        let rules = self.limits.rules.iter().enumerate();
        let charges = rules.map(|(number, rule)| {
            let charge = Charge::new(rule.id, sink.bytes(), tokens);
            (number, charge.with(self.quota))
        });
        charges.collect()
    }

    /// Charges each policy's cost, 1 by default, to a key, if all policies allow it.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn check(&self, key: impl IntoKey) -> impl Future<Output = Result<Decision, BackendError>> {
        CheckFuture::new(self, key, None)
    }

    /// Charges `cost` tokens to a key, if all policies allow it. A cost of zero takes no tokens.
    ///
    /// No policy allows a cost above the burst of its quota. If its algorithm has no burst, the limit takes the burst's
    /// place. If [`with_quota`](Self::with_quota) sets another quota, that quota's burst or limit usually counts.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub fn check_n(
        &self,
        key: impl IntoKey,
        cost: u64,
    ) -> impl Future<Output = Result<Decision, BackendError>> {
        CheckFuture::new(self, key, Some(cost))
    }

    /// Returns the state of a key without a charge: its remaining tokens, and the time until all its tokens are free.
    ///
    /// A peek is a check of cost zero, which only a quota of zero rejects. Of all [events](crate::Event), a peek causes
    /// at most `BackendFailed`, `CircuitOpened` and `CircuitClosed`.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn peek(&self, key: impl IntoKey) -> Result<Decision, BackendError> {
        self.check_quota()?;
        let limits = &*self.limits;
        let mut check = Box::<Check>::default();
        let outcome = match limits.decide_silently(&mut check, self.apply(key, Some(0))) {
            Outcome::Later => poll_fn(|cx| limits.poll(&mut check, cx)).await,
            outcome => outcome,
        };
        decision(limits, outcome, &mut check)
    }

    /// Charges `tokens` in addition to an earlier check, for a cost that turns out higher than expected. If fewer
    /// tokens are free, the key goes into debt, and later checks are rejected for longer. A fixed window forgets the
    /// debt when the window ends.
    ///
    /// While the [circuit is open](crate::FailureMode), the [local fallback](crate::FailureMode::Local) is charged.
    /// Without a local fallback, the charge then fails.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let limiter = Limiter::new(Memory::default(), Policy::new("tokens", Quota::per_second(10)))?;
    /// assert!(limiter.check_n("alice", 5).await?.allowed);
    /// // The real cost was 25.
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
        self.correct(key, delta).await
    }

    /// Refunds `tokens` that were charged and not used. A bucket never holds more than its burst. With a window
    /// algorithm, make the refund before the window of the charge ends. A later refund can lower the count of the
    /// current window instead.
    ///
    /// While the [circuit is open](crate::FailureMode), the [local fallback](crate::FailureMode::Local) gets the
    /// refund. Without a local fallback, the refund then fails.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn refund(&self, key: impl IntoKey, tokens: u64) -> Result<(), BackendError> {
        let delta = i64::try_from(tokens).map_or(i64::MIN, |tokens| -tokens);
        self.correct(key, delta).await
    }

    async fn correct(&self, key: impl IntoKey, delta: i64) -> Result<(), BackendError> {
        let limits = &*self.limits;
        let source = match limits.failure_mode {
            FailureMode::Local { .. } if limits.guard.open_for().is_some() => Source::Local,
            _ => Source::Backend,
        };
        let answer = {
            let sink = sink_of(key);
            limits.settle(source, &self.charges(&sink, delta.unsigned_abs()), delta)
        };
        match answer {
            Answer::Done(_) => Ok(()),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => Timeout::new(limits.timeout, answer).await.map(|_| ()),
        }
    }

    /// Clears the count of a key, also in the [local fallback](crate::FailureMode::Local). While the [circuit is
    /// open](crate::FailureMode), clears only the local fallback, and fails.
    ///
    /// If the backend fails to clear the count of one policy, it can still clear the counts of the other policies. The
    /// resets of all policies share one timeout.
    ///
    /// # Errors
    ///
    /// See [`Limiter`].
    pub async fn reset(&self, key: impl IntoKey) -> Result<(), BackendError> {
        let limits = &*self.limits;
        let done = {
            let sink = sink_of(key);
            let charges = self.charges(&sink, 0);
            if let Some(fallback) = limits.guard.fallback() {
                for (number, charge) in &charges {
                    fallback.reset(*number, charge.key);
                }
            }
            if limits.guard.open_for().is_some() {
                return Err(BackendError::circuit_open());
            }
            let resets = charges.iter();
            let resets = resets.map(|(_, charge)| limits.backend.reset(charge.policy, charge.key));
            resets.collect::<SmallVec<[_; 1]>>()
        };
        let all = async {
            let mut all = Ok(());
            for one in done {
                all = all.and(one.await);
            }
            all
        };
        Timeout::new(limits.timeout, Box::pin(all)).await
    }

    /// Gives unused tokens of [leases](crate::Consistency::Leased) back to the backend. Call it before shutdown:
    /// otherwise all unused tokens are lost, which matters for hourly and daily quotas.
    ///
    /// A bucket gets back its unused tokens minus a deduction. The deduction is the number of tokens that the bucket
    /// regains in one period. This period is the [lease time](crate::Consistency::Leased) plus the [backend
    /// timeout](LimiterBuilder::backend_timeout). The deduction keeps the [bound on
    /// over-admission](crate::Consistency::Leased). Windows, logs, and keys of more than about 1,000 bytes get nothing
    /// back. Later requests can lease again. Without leases, this method has no effect.
    ///
    /// # Errors
    ///
    /// With leases, fails if the backend fails or times out. The tokens that the backend did not take back are then
    /// lost. While the [circuit is open](crate::FailureMode), fails immediately and keeps the leases.
    ///
    /// # Panics
    ///
    /// With leases on a remote backend, can panic if it is polled outside of a tokio runtime.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, tokens that were not sent to the backend can be lost.
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

    /// Checks the quota of [`with_quota`](Self::with_quota) against the policies, and against the bounds that all
    /// backends share.
    #[cold]
    fn check_quota(&self) -> Result<(), BackendError> {
        let rules = &self.limits.rules;
        match self.quota {
            Some(_) if rules.iter().any(|rule| !rule.policy.has_dynamic_quotas()) => {
                let error = "a quota for a policy without dynamic_quotas";
                Err(BackendError::new(error))
            }
            Some(quota) if !quota.is_zero() => quota.check().map_err(BackendError::new),
            _ => Ok(()),
        }
    }
}

impl fmt::Debug for Limiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Limiter")
            .field("policies", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Returns a sink that contains only this key.
fn sink_of(key: impl IntoKey) -> KeySink {
    let mut sink = KeySink::new();
    let _ = sink.key(|sink| key.write(sink));
    sink
}

/// Returns the decision that matters most to the caller, or the error that left the check undecided.
#[inline(never)]
fn decision(limits: &Limits, outcome: Outcome, check: &mut Check) -> DecisionResult {
    // In shadow mode, `true` also if a policy rejected the request.
    let allowed = limits.shadow || matches!(outcome, Outcome::Pass { .. });
    if !allowed && let Some(error) = check.cause.take() {
        return Err(error);
    }
    let tightest = Decided::new(&limits.rules, check).tightest(|_| true);
    Ok(Decision {
        allowed,
        // The caller waits for the slowest leaky queue, which need not be the tightest policy.
        delay: limits.delay(check),
        // At least one policy has a decision, so the default is never used.
        ..tightest.map_or_else(Decision::default, |(_, decision)| *decision)
    })
}
