mod check;
mod corrections;
mod decide;
mod guard;
mod pending;
mod rule;

use std::{
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

use self::guard::{BackendGuard, Unguarded};
pub(crate) use self::{
    check::{Check, PolicyCharge},
    pending::Pending,
    rule::{Applies, Rule},
};
use crate::{
    BuildError, Consistency, Decision, FailureMode, Policy, Reason,
    backend::{Backend, BackendError, DEFAULT_TIMEOUT, Memory, PolicyId, SinglePolicy},
    build_error::ensure,
    eventual::Eventual,
    failover::Failover,
    lease::{Leases, Leasing},
    observe::Emitter,
    register::{check, register, register_checked},
    terms::Terms,
};

/// The decision core under every form of limit: the policies, their backend, and the failure mode.
pub(crate) struct Limits {
    pub(crate) backend: Arc<dyn Backend>,
    /// The fast path: decides charges without a quota of their own directly in a [`Memory`], and never fails.
    /// `None` with several policies, leases, eventual decisions, or another backend.
    single: Option<SinglePolicy>,
    /// The leases on top of the backend, if the consistency is leased.
    leasing: Option<Arc<dyn Leases>>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) timeout: Duration,
    pub(crate) failure_mode: FailureMode,
    pub(crate) guard: Box<dyn BackendGuard>,
    pub(crate) shadow: bool,
    pub(crate) emitter: Emitter,
    warned_of_late_quotas: Once,
}

/// The settings of every form of limit.
pub(crate) struct Settings {
    backend: Arc<dyn Backend>,
    pub(crate) failure_mode: FailureMode,
    pub(crate) timeout: Duration,
    consistency: Consistency,
    /// Wraps the backend for the consistency. `None` if the user sets no consistency. Only the setter mentions this
    /// function, so a binary that never calls the setter contains neither leases nor eventual decisions.
    wrap: Option<Wrap>,
    /// Builds the guard of a backend that can fail. `None` for a backend in this process, unless the user sets a
    /// consistency. If the compiler knows that the field is always `None`, the binary contains neither the circuit
    /// breaker nor the deny cache.
    guard: Option<NewGuard>,
    pub(crate) deny_cache: bool,
    pub(crate) shadow: bool,
    pub(crate) emitter: Emitter,
}

/// Puts leases or eventual decisions on top of a backend, if the consistency is not exact. The ids are the backend's
/// ids of the policies, and the duration is the timeout of the backend.
type Wrap = fn(
    Consistency,
    Arc<dyn Backend>,
    &[Policy],
    &[PolicyId],
    Duration,
) -> Result<(Arc<dyn Backend>, Option<Arc<dyn Leases>>), BuildError>;

type NewGuard =
    fn(FailureMode, Duration, &[Policy], Emitter) -> Result<Box<dyn BackendGuard>, BuildError>;

/// Builds a guard with a circuit breaker.
const GUARDED: NewGuard =
    |mode, time, policies, emitter| Ok(Box::new(Failover::new(mode, time, policies, emitter)?));

/// The outcome of a request.
#[derive(Clone, Copy)]
pub(crate) enum Outcome {
    Pass {
        /// Whether the limit itself admitted the request. `false` for an exempt request, and for a request that
        /// passes only in shadow mode. `true` also if no policy applies, and if [`FailureMode::Open`] admits the
        /// request.
        charged: bool,
    },
    Reject(Reason),
    /// The decision is pending, and `Check::waiting` is set.
    Later,
}

impl Outcome {
    /// Returns the outcome of a request for which this is the only decision.
    fn of(decision: &Decision) -> Self {
        match decision.allowed {
            true => Self::Pass { charged: true },
            false => Self::Reject(Reason::Quota),
        }
    }
}

impl Limits {
    fn warn_of_lookup_timeout(&self) {
        self.warned_of_late_quotas.call_once(|| {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                name = self.emitter.name(),
                deadline = ?self.timeout,
                "rate-limit quota look-up timed out: the failure mode decides"
            );
        });
    }

    /// Gives unused leased tokens back to the backend. Without leases, does nothing. With leases and an open circuit,
    /// fails without a call to the backend.
    pub(crate) async fn return_leases(&self) -> Result<(), BackendError> {
        match &self.leasing {
            None => Ok(()),
            Some(_) if self.guard.open_for().is_some() => Err(BackendError::circuit_open()),
            Some(leasing) => leasing.give_back().await,
        }
    }

    /// Returns the time for which an allowed request waits in leaky queues. Zero in shadow mode.
    pub(crate) fn delay(&self, check: &Check) -> Duration {
        match self.shadow {
            true => Duration::ZERO,
            false => check.delay(),
        }
    }
}

impl Settings {
    pub(crate) fn new(backend: impl Backend) -> Self {
        Self {
            guard: backend.is_remote().then_some(GUARDED),
            backend: Arc::new(backend),
            failure_mode: FailureMode::default(),
            timeout: DEFAULT_TIMEOUT,
            consistency: Consistency::default(),
            wrap: None,
            deny_cache: true,
            shadow: false,
            emitter: Emitter::default(),
        }
    }

    pub(crate) fn set_consistency(&mut self, consistency: Consistency) {
        self.consistency = consistency;
        self.guard = Some(GUARDED);
        self.wrap = Some(|consistency, backend, policies, ids, timeout| {
            Ok(match consistency {
                Consistency::Exact => (backend, None),
                Consistency::Leased(time) => {
                    let leases = Arc::new(Leasing::new(backend, policies, ids, time, timeout));
                    (Arc::clone(&leases) as _, Some(leases as _))
                }
                Consistency::Eventual(period) => {
                    let post_paid = Eventual::new(backend, policies, ids, period, timeout)?;
                    (Arc::new(post_paid), None)
                }
            })
        });
    }

    /// Checks the policies and registers them with the backend.
    pub(crate) fn build(self, policies: Vec<Policy>) -> Result<Limits, BuildError> {
        let (mut backend, timeout, consistency) = (self.backend, self.timeout, self.consistency);
        let is_valid = !timeout.is_zero() && timeout <= MAX_TIMEOUT;
        ensure!(is_valid, "backend_timeout" is timeout, "above 0 and at most {MAX_TIMEOUT:?}");
        self.failure_mode.check()?;
        consistency.check()?;
        check(&*backend, &policies)?;
        if let (Consistency::Leased(_), 2..) = (consistency, policies.len()) {
            let bound = "exact or eventual with several policies";
            return Err(BuildError::new("consistency", "leased", bound));
        }
        let mut guard: Box<dyn BackendGuard> = match self.guard {
            None => Box::new(Unguarded),
            Some(guard) => guard(self.failure_mode, timeout, &policies, self.emitter.clone())?,
        };
        if let Consistency::Eventual(_) = consistency {
            // The local copy of the counts is a `Memory`, which may not support a policy.
            register(&Memory::default(), &policies)?;
        }
        // Most settings are checked before the registration. So a build with an invalid setting normally registers
        // nothing.
        let ids = register_checked(&*backend, &policies)?;
        if self.deny_cache && backend.is_remote() {
            let exact = consistency == Consistency::Exact;
            backend = guard.cache(backend, Terms::all(&policies, &ids), exact);
        }
        let (backend, leasing) = match self.wrap {
            None => (backend, None),
            Some(wrap) => wrap(consistency, backend, &policies, &ids, timeout)?,
        };
        let single = match ids[..] {
            [only] => Memory::single(&*backend, only),
            _ => None,
        };
        let rules = policies.into_iter().zip(ids);
        Ok(Limits {
            single,
            rules: rules
                .map(|(policy, id)| Rule::new(policy, id, &self.emitter.name))
                .collect(),
            backend,
            leasing,
            timeout,
            failure_mode: self.failure_mode,
            guard,
            shadow: self.shadow,
            emitter: self.emitter,
            warned_of_late_quotas: Once::new(),
        })
    }
}

/// Prints the list of policies.
impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = self.rules.iter().map(|rule| &rule.policy);
        f.debug_list().entries(policies).finish()
    }
}

/// The longest `backend_timeout`.
const MAX_TIMEOUT: Duration = Duration::from_secs(60);
