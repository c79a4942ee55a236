use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Applies, Check, Limits, Outcome, PolicyCharge, Rule, check::Waiting};
use crate::{
    Decided, Decision, Decisions, Event, FailureMode, Quota, Reason, Rejection, Source,
    backend::{BackendError, SinglePolicy, Timeout},
    key::{KeyBytes, KeySink},
};

impl Limits {
    /// Decides on a request and emits the event of its outcome, unless the decision is pending.
    ///
    /// `apply` returns whether a policy applies to the request, and fills in its charge. `check` must be new.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        check: &mut Check,
        apply: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Outcome {
        let outcome = self.decide_silently(check, apply);
        self.report(outcome, check)
    }

    /// Decides on a request without an event of its outcome.
    #[inline(always)]
    pub(crate) fn decide_silently(
        &self,
        check: &mut Check,
        apply: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Outcome {
        match self.prepare(check, apply) {
            Ok(()) if check.waiting.is_none() => self.decide_charges(check),
            Ok(()) => Outcome::Later,
            Err(reason) => Outcome::Reject(reason),
        }
    }

    /// Emits the event of an outcome. In shadow mode a rejected request passes.
    #[inline]
    pub(crate) fn report(&self, outcome: Outcome, check: &Check) -> Outcome {
        if self.shadow || self.emitter.observer.is_some() {
            self.report_to_observer(outcome, check)
        } else {
            outcome
        }
    }

    #[cold]
    fn report_to_observer(&self, outcome: Outcome, check: &Check) -> Outcome {
        match outcome {
            Outcome::Pass { .. } => {
                let decided = Decided::new(&self.rules, check);
                self.emitter.emit(|| Event::Allowed(decided));
                let delay = check.delay();
                if !delay.is_zero() {
                    self.emitter.emit(|| Event::Waited(delay));
                }
            }
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(&self.rules, check, reason);
                if self.shadow {
                    self.emitter.emit(|| Event::Shadowed(rejection));
                    return Outcome::Pass { charged: false };
                }
                self.emitter.emit(|| Event::Rejected(rejection));
            }
            Outcome::Later => {}
        }
        outcome
    }

    /// Collects the charges of a request and its pending quota look-ups. Fails if a policy rejects the request because
    /// its key is missing.
    #[inline(always)]
    pub(crate) fn prepare(
        &self,
        check: &mut Check,
        mut apply: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Result<(), Reason> {
        for (number, rule) in self.rules.iter().enumerate() {
            let mut asked = PolicyCharge::new(number, rule.id, rule.policy.cost);
            match apply(rule, &mut check.sink, &mut asked) {
                Applies::Yes => {}
                Applies::WithQuota(quota) => check.look_up(Timeout::new(self.timeout, quota)),
                Applies::No => continue,
                Applies::Rejects(reason) => {
                    check.charges.clear();
                    check.keyless = number;
                    return Err(reason);
                }
            }
            check.charges.push(asked);
        }
        Ok(())
    }

    /// Returns the fast path and its policy. The fast path decides charges without a quota of their own. `None` if
    /// there is no fast path, or if an observer or shadow mode needs the whole check.
    #[inline]
    pub(crate) fn unobserved(&self) -> Option<(&SinglePolicy, &Rule)> {
        let silent = !self.shadow && self.emitter.observer.is_none();
        let single = self.single.as_ref().filter(|_| silent)?;
        Some((single, self.rules.first()?))
    }

    /// Decides on a request without a [`Check`], whose construction takes a fifth of the time of a decision. `sink` must
    /// be new. Writes the charge to `asked`.
    ///
    /// # Errors
    ///
    /// `None` if there is no fast path, an observer or shadow mode needs the whole check, or the policy has
    /// dynamic quotas. Otherwise the result of `apply`, if it is not [`Applies::Yes`].
    #[inline(always)]
    pub(crate) fn decide_fast(
        &self,
        sink: &mut KeySink,
        asked: &mut Option<PolicyCharge>,
        mut apply: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Result<Decision, Option<Applies>> {
        let fixed = self.unobserved();
        let fixed = fixed.filter(|(_, rule)| !rule.policy.has_dynamic_quotas());
        let (single, rule) = fixed.ok_or(None)?;
        let asked = asked.insert(PolicyCharge::new(0, rule.id, rule.policy.cost));
        match apply(rule, sink, asked) {
            Applies::Yes => Ok(single.charge(KeyBytes::of(asked.key(sink.bytes())), asked.cost)),
            applies => Err(Some(applies)),
        }
    }

    /// Decides on the charges of a request.
    #[inline(always)]
    pub(crate) fn decide_charges(&self, check: &mut Check) -> Outcome {
        let (Some(single), [asked @ PolicyCharge { quota: None, .. }]) =
            (&self.single, check.charges.as_slice())
        else {
            return self.query_backend(check);
        };
        // Nothing can fail, so neither the timeout nor the circuit breaker is needed.
        check.decisions.reject(1);
        check.decisions[0] = single.charge(KeyBytes::of(asked.key(check.sink.bytes())), asked.cost);
        Outcome::of(&check.decisions[0])
    }

    #[inline(never)]
    fn query_backend(&self, check: &mut Check) -> Outcome {
        if check.charges.is_empty() {
            return Outcome::Pass { charged: true };
        }
        if check.charges.iter().any(PolicyCharge::has_zero_quota) {
            // A quota of zero rejects the request without the backend.
            check.charges.retain(|asked| asked.has_zero_quota());
            check.decisions.reject(check.charges.len());
            return Outcome::Reject(Reason::Quota);
        }
        self.guard.query(self, check)
    }

    /// Polls a pending decision and completes the check. Never returns [`Outcome::Later`].
    pub(crate) fn poll(&self, check: &mut Check, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let outcome = match &mut check.waiting {
                Some(Waiting::Quotas(lookups)) => {
                    let mut late = false;
                    lookups.retain_mut(|(place, lookup)| {
                        let Poll::Ready(quota) = Pin::new(lookup).poll(cx) else {
                            return true;
                        };
                        match quota {
                            Ok(quota) => {
                                check.charges[*place].quota = quota.and_then(Quota::usable)
                            }
                            Err(_) => late = true,
                        }
                        false
                    });
                    let zero = check.charges.iter().any(PolicyCharge::has_zero_quota);
                    if late && !zero {
                        self.warn_of_lookup_timeout();
                        // The backend was not queried, so the circuit breaker counts no failure.
                        self.fail_over(check, BackendError::late("quota", self.timeout))
                    } else if zero || lookups.is_empty() {
                        check.waiting = None;
                        // Not by the fast path, which would be compiled into this function, too.
                        self.query_backend(check)
                    } else {
                        return Poll::Pending;
                    }
                }
                _ => ready!(self.guard.poll(self, check, cx)),
            };
            if !matches!(outcome, Outcome::Later) {
                check.waiting = None;
                return Poll::Ready(outcome);
            }
        }
    }

    /// Decides a request by the failure mode, because of this error.
    pub(super) fn fail_over(&self, check: &mut Check, error: BackendError) -> Outcome {
        self.emitter.emit(|| Event::BackendFailed(&error));
        let error = match self.failure_mode {
            FailureMode::Open => {
                check.decisions = self.uncounted(check, &|limit| {
                    Decision::allow(0, limit, 0, Duration::ZERO).by(Source::Allowed)
                });
                return Outcome::Pass { charged: true };
            }
            FailureMode::Closed => error,
            FailureMode::Local { .. } => match self.guard.decide_locally(self, check) {
                Ok(true) => return Outcome::Pass { charged: true },
                Ok(false) => return Outcome::Reject(Reason::ReducedCapacity),
                Err(error) => error,
            },
        };
        let asked_again = self.guard.open_for();
        check.decisions = self.uncounted(check, &|limit| {
            Decision::reject(limit, 0, asked_again, Duration::ZERO).by(Source::Denied)
        });
        check.cause = Some(error);
        Outcome::Reject(Reason::Backend)
    }

    /// Builds decisions that no counter made, one per charge. `decision` receives the limit of the charge's quota.
    fn uncounted(&self, check: &Check, decision: &dyn Fn(u64) -> Decision) -> Decisions {
        let charges = check.charges.iter();
        let quotas = charges.map(|asked| {
            let own = || self.rules[asked.rule].policy.quota();
            asked.quota.unwrap_or_else(own)
        });
        quotas.map(|quota| decision(quota.limit())).collect()
    }
}
