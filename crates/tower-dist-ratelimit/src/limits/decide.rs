use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{Applies, Check, Limits, Outcome, PolicyCharge, Rule, check::Waiting};
use crate::{
    Decided, Decision, Decisions, Event, Quota, Reason, Rejection, Source,
    backend::{Answer, BackendError, JointDecision, Timeout},
    failover::{Fallback, OnFailure, Permit},
    key::KeySink,
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

    /// Collects the charges of a request and the quota look-ups that are still needed. Fails if a policy rejects the
    /// request because its key is missing.
    #[inline(always)]
    pub(crate) fn prepare(
        &self,
        check: &mut Check,
        mut apply: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Result<(), Reason> {
        for (number, rule) in self.rules.iter().enumerate() {
            let mut asked = PolicyCharge {
                rule: number,
                id: rule.id,
                key: 0..0,
                cost: rule.policy.cost,
                quota: None,
            };
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

    /// Decides on the charges of a request. The timeout of the backend starts now.
    #[inline(always)]
    pub(crate) fn decide_charges(&self, check: &mut Check) -> Outcome {
        let (Some(single), [asked]) = (&self.single, check.charges.as_slice()) else {
            return self.query_backend(check);
        };
        if asked.has_zero_quota() {
            return self.query_backend(check);
        }
        // The fast path: nothing can fail, so neither the timeout nor the circuit breaker is needed.
        check.decisions.reject(1);
        let decision = &mut check.decisions[0];
        match single.charge(asked.key(check.sink.bytes()), asked.cost, decision) {
            true => Outcome::Pass { charged: true },
            false => Outcome::Reject(Reason::Quota),
        }
    }

    #[inline(never)]
    fn query_backend(&self, check: &mut Check) -> Outcome {
        if check.charges.is_empty() {
            return Outcome::Pass { charged: true };
        }
        if check.charges.iter().any(PolicyCharge::has_zero_quota) {
            // A limit of zero needs no backend.
            check.charges.retain(|asked| asked.has_zero_quota());
            check.decisions = Decisions::rejected(check.charges.len());
            return Outcome::Reject(Reason::Quota);
        }
        match self.failover.permit() {
            Ok(permit) => match self.recover(check, permit) {
                Ok(permit) => {
                    let answer = check.acquire(&*self.backend);
                    self.outcome(check, answer, permit)
                }
                Err(reason) => Outcome::Reject(reason),
            },
            Err(_) if self.spend(check) => Outcome::Pass { charged: true },
            Err(error) => self.fail_over(check, error),
        }
    }

    /// Handles the backend's answer.
    fn outcome(&self, check: &mut Check, answer: Answer, permit: Permit) -> Outcome {
        match answer {
            Answer::Done(allowed) => {
                self.failover.answered_immediately(permit);
                self.by_quota(check, allowed, permit)
            }
            Answer::Failed(error) => self.failed(check, permit, error),
            Answer::Later(answer) => {
                self.failover.answers_later();
                let answer = Timeout::new(self.timeout, answer);
                check.waiting = Some(Waiting::Backend(answer, permit));
                Outcome::Later
            }
        }
    }

    pub(super) fn decided(
        &self,
        check: &mut Check,
        verdict: Result<JointDecision, BackendError>,
        permit: Permit,
    ) -> Outcome {
        match verdict {
            Ok(JointDecision { allowed, decisions }) if decisions.len() == check.charges.len() => {
                self.failover.answered(permit, false);
                check.decisions = decisions;
                self.by_quota(check, allowed, permit)
            }
            Ok(_) => {
                let error = BackendError::new("the answer does not have one decision per charge");
                self.failed(check, permit, error)
            }
            Err(error) => self.failed(check, permit, error),
        }
    }

    /// Polls a pending decision and completes the check. Never returns [`Outcome::Later`].
    pub(crate) fn poll(&self, check: &mut Check, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let outcome = match &mut check.waiting {
                Some(Waiting::Quotas(lookups)) => {
                    let mut late = None;
                    lookups.retain_mut(|(place, lookup)| match Pin::new(lookup).poll(cx) {
                        Poll::Pending => true,
                        Poll::Ready(Ok(quota)) => {
                            check.charges[*place].quota = quota.and_then(Quota::usable);
                            false
                        }
                        Poll::Ready(Err(error)) => {
                            late = Some(error);
                            false
                        }
                    });
                    if let Some(error) = late {
                        self.warn_of_lookup_timeout();
                        // This is no failure of the backend, which was not queried.
                        self.fail_over(check, error)
                    } else if lookups.is_empty() {
                        check.waiting = None;
                        self.decide_charges(check)
                    } else {
                        return Poll::Pending;
                    }
                }
                Some(Waiting::Backend(verdict, permit)) => {
                    let permit = *permit;
                    let verdict = ready!(Pin::new(verdict).poll(cx));
                    self.decided(check, verdict, permit)
                }
                None => unreachable!("a pending decision waits for something"),
            };
            if !matches!(outcome, Outcome::Later) {
                check.waiting = None;
                return Poll::Ready(outcome);
            }
        }
    }

    /// Handles an error of the backend. The request is not sent again, because the backend may have charged it already.
    fn failed(&self, check: &mut Check, permit: Permit, error: BackendError) -> Outcome {
        self.failover.failed(permit, &error);
        self.release(check, permit);
        self.fail_over(check, error)
    }

    /// Decides a request by the failure mode, because of this error.
    pub(super) fn fail_over(&self, check: &mut Check, error: BackendError) -> Outcome {
        self.emitter.emit(|| Event::BackendFailed(&error));
        let error = match &self.failover.on_failure {
            OnFailure::Open => {
                check.decisions = self.uncounted(check, &|limit| Decision {
                    source: Source::Allowed,
                    ..Decision::allow(0, limit, 0, Duration::ZERO)
                });
                return Outcome::Pass { charged: true };
            }
            OnFailure::Closed => error,
            OnFailure::Local(fallback) => match decide_locally(check, fallback) {
                Ok(true) => {
                    for asked in &check.charges {
                        fallback.keep(asked.rule, asked.charge(check.keys()));
                    }
                    return Outcome::Pass { charged: true };
                }
                Ok(false) => return Outcome::Reject(Reason::ReducedCapacity),
                Err(error) => error,
            },
        };
        let asked_again = self.failover.open_for();
        check.decisions = self.uncounted(check, &|limit| Decision {
            source: Source::Denied,
            ..Decision::reject(limit, 0, asked_again, Duration::ZERO)
        });
        check.cause = Some(error);
        Outcome::Reject(Reason::Backend)
    }

    fn by_quota(&self, check: &Check, allowed: bool, permit: Permit) -> Outcome {
        if allowed {
            return Outcome::Pass { charged: true };
        }
        self.release(check, permit);
        Outcome::Reject(Reason::Quota)
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

    /// Charges the request to a lease while the circuit is open. Returns whether the lease had enough tokens.
    fn spend(&self, check: &mut Check) -> bool {
        let (Some(leasing), [asked]) = (&self.leasing, check.charges.as_slice()) else {
            return false;
        };
        let charge = asked.charge(check.sink.bytes());
        check.decisions.reject(1);
        leasing.spend(&charge, &mut check.decisions[0])
    }

    /// If this process has recently returned to the backend, reports the tokens that it has admitted alone. While other
    /// processes may still decide alone, also charges the request to this process's share.
    fn recover(&self, check: &mut Check, permit: Permit) -> Result<Permit, Reason> {
        let Some((fallback, is_shared)) = self.failover.recovering() else {
            return Ok(permit);
        };
        if let Permit::Probe(_) = permit {
            return Ok(permit);
        }
        for asked in &check.charges {
            let charge = asked.charge(check.keys());
            let unreported = fallback.take_unreported(asked.rule, charge);
            let unreported = i64::try_from(unreported).unwrap_or(i64::MAX);
            self.correct(Source::Backend, asked.rule, charge, unreported);
        }
        if !is_shared {
            return Ok(permit);
        }
        match decide_locally(check, fallback) {
            Ok(true) => Ok(Permit::Shared),
            Ok(false) => Err(Reason::ReducedCapacity),
            Err(_) => Ok(permit),
        }
    }

    /// If the request was also charged to this process's share, refunds that charge, because the backend has not admitted the
    /// request.
    fn release(&self, check: &Check, permit: Permit) {
        if let (Permit::Shared, OnFailure::Local(fallback)) = (permit, &self.failover.on_failure) {
            for asked in &check.charges {
                fallback.release(asked.rule, asked.charge(check.keys()));
            }
        }
    }
}

/// Decides on a request with this process's share of each quota.
fn decide_locally(check: &mut Check, fallback: &Fallback) -> Result<bool, BackendError> {
    check.decisions.reject(check.charges.len());
    let keys = check.sink.bytes();
    let charges = check.charges.iter();
    let charges = charges.map(|asked| (asked.rule, asked.charge(keys)));
    fallback.acquire(charges, &mut check.decisions)
}
