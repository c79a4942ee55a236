use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use super::{
    Applies, Limits, Outcome, PolicyCharge, Question, Rule,
    question::{LookUps, Waiting},
};
use crate::{
    Decided, Decision, Decisions, Event, Quota, Reason, Rejection, Source,
    backend::{Answer, BackendError, Bounded, JointDecision},
    key::KeySink,
    ladder::{Fallback, Instead, Leave},
};

impl Limits {
    /// Decides on a request and emits the event of its outcome, unless the decision is pending.
    ///
    /// `look` returns whether a policy applies to the request, and fills in its charge. `question` must be new.
    #[inline(always)]
    pub(crate) fn decide(
        &self,
        question: &mut Question,
        look: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Outcome {
        let outcome = self.decide_silently(question, look);
        self.tell(outcome, question)
    }

    /// Decides on a request without an event of its outcome.
    #[inline(always)]
    pub(crate) fn decide_silently(
        &self,
        question: &mut Question,
        look: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Outcome {
        match self.prepare(question, look) {
            Ok(lookups) if lookups.is_empty() => self.ask(question),
            Ok(lookups) => {
                question.waiting = Some(Waiting::Quotas(lookups));
                Outcome::Later
            }
            Err(reason) => Outcome::Reject(reason),
        }
    }

    /// Emits the event of an outcome. In shadow mode a rejected request passes.
    #[inline]
    pub(crate) fn tell(&self, outcome: Outcome, question: &Question) -> Outcome {
        if self.shadow || self.watch.observer.is_some() {
            self.tell_observer(outcome, question)
        } else {
            outcome
        }
    }

    #[cold]
    fn tell_observer(&self, outcome: Outcome, question: &Question) -> Outcome {
        match outcome {
            Outcome::Pass { .. } => {
                let decided = Decided::new(&self.rules, question);
                self.watch.emit(|| Event::Allowed(decided));
                let delay = question.delay();
                if !delay.is_zero() {
                    self.watch.emit(|| Event::Waited(delay));
                }
            }
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(&self.rules, question, reason);
                if self.shadow {
                    self.watch.emit(|| Event::Shadowed(rejection));
                    return Outcome::Pass { charged: false };
                }
                self.watch.emit(|| Event::Rejected(rejection));
            }
            Outcome::Later => {}
        }
        outcome
    }

    /// Collects the charges of a request and returns the quota look-ups that are still needed. Fails if a policy
    /// rejects the request because its key is missing.
    #[inline(always)]
    pub(crate) fn prepare(
        &self,
        question: &mut Question,
        mut look: impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies,
    ) -> Result<LookUps, Reason> {
        let mut lookups = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            let mut asked = PolicyCharge {
                rule: number,
                id: rule.id,
                key: 0..0,
                cost: rule.policy.cost,
                quota: None,
            };
            match look(rule, &mut question.sink, &mut asked) {
                Applies::Yes => {}
                Applies::WithQuota(quota) => {
                    let quota = Bounded::new(self.timeout, quota);
                    lookups.push((question.charges.len(), quota));
                }
                Applies::No => continue,
                Applies::Rejects(reason) => {
                    question.charges.clear();
                    question.keyless = number;
                    return Err(reason);
                }
            }
            question.charges.push(asked);
        }
        Ok(lookups)
    }

    /// Decides on the charges of a request. The timeout of the backend starts now.
    #[inline(always)]
    pub(crate) fn ask(&self, question: &mut Question) -> Outcome {
        let (Some(alone), [asked]) = (&self.alone, question.charges.as_slice()) else {
            return self.ask_backend(question);
        };
        if asked.is_shut_out() {
            return self.ask_backend(question);
        }
        // The fast path: nothing can fail, so neither the timeout nor the circuit breaker is needed.
        question.decisions.reject(1);
        let decision = &mut question.decisions[0];
        match alone.charge(asked.key(question.sink.bytes()), asked.cost, decision) {
            true => Outcome::Pass { charged: true },
            false => Outcome::Reject(Reason::Quota),
        }
    }

    #[inline(never)]
    fn ask_backend(&self, question: &mut Question) -> Outcome {
        if question.charges.is_empty() {
            return Outcome::Pass { charged: true };
        }
        if question.charges.iter().any(PolicyCharge::is_shut_out) {
            // A limit of zero needs no backend.
            question.charges.retain(|asked| asked.is_shut_out());
            question.decisions = Decisions::rejected(question.charges.len());
            return Outcome::Reject(Reason::Quota);
        }
        match self.ladder.leave() {
            Ok(leave) => match self.recover(question, leave) {
                Ok(leave) => {
                    let answer = question.ask(&*self.backend);
                    self.outcome(question, answer, leave)
                }
                Err(reason) => Outcome::Reject(reason),
            },
            Err(_) if self.spend(question) => Outcome::Pass { charged: true },
            Err(error) => self.undecided(question, error),
        }
    }

    /// Handles the backend's answer.
    fn outcome(&self, question: &mut Question, answer: Answer, leave: Leave) -> Outcome {
        match answer {
            Answer::Done(allowed) => {
                self.ladder.answered_at_once(leave);
                self.by_quota(question, allowed, leave)
            }
            Answer::Failed(error) => self.failed(question, leave, error),
            Answer::Later(answer) => {
                self.ladder.answers_later();
                let answer = Bounded::new(self.timeout, answer);
                question.waiting = Some(Waiting::Backend(answer, leave));
                Outcome::Later
            }
        }
    }

    pub(super) fn decided(
        &self,
        question: &mut Question,
        verdict: Result<JointDecision, BackendError>,
        leave: Leave,
    ) -> Outcome {
        match verdict {
            Ok(JointDecision { allowed, decisions })
                if decisions.len() == question.charges.len() =>
            {
                self.ladder.answered(leave, false);
                question.decisions = decisions;
                self.by_quota(question, allowed, leave)
            }
            Ok(_) => {
                let error = BackendError::new("the answer does not have one decision per charge");
                self.failed(question, leave, error)
            }
            Err(error) => self.failed(question, leave, error),
        }
    }

    /// Polls a pending decision and completes the question. Never returns [`Outcome::Later`].
    pub(crate) fn poll(&self, question: &mut Question, cx: &mut Context<'_>) -> Poll<Outcome> {
        loop {
            let outcome = match &mut question.waiting {
                Some(Waiting::Quotas(lookups)) => {
                    let mut late = None;
                    lookups.retain_mut(|(place, lookup)| match Pin::new(lookup).poll(cx) {
                        Poll::Pending => true,
                        Poll::Ready(Ok(quota)) => {
                            question.charges[*place].quota = quota.and_then(Quota::usable);
                            false
                        }
                        Poll::Ready(Err(error)) => {
                            late = Some(error);
                            false
                        }
                    });
                    if let Some(error) = late {
                        self.warn_of_late_quotas();
                        // This is no failure of the backend, which was not queried.
                        self.undecided(question, error)
                    } else if lookups.is_empty() {
                        question.waiting = None;
                        self.ask(question)
                    } else {
                        return Poll::Pending;
                    }
                }
                Some(Waiting::Backend(verdict, leave)) => {
                    let leave = *leave;
                    let verdict = ready!(Pin::new(verdict).poll(cx));
                    self.decided(question, verdict, leave)
                }
                None => unreachable!("a pending decision waits for something"),
            };
            if !matches!(outcome, Outcome::Later) {
                question.waiting = None;
                return Poll::Ready(outcome);
            }
        }
    }

    /// Handles an error of the backend. The request is not sent again, because the backend may have charged it already.
    fn failed(&self, question: &mut Question, leave: Leave, error: BackendError) -> Outcome {
        self.ladder.failed(leave, &error);
        self.release(question, leave);
        self.undecided(question, error)
    }

    /// Decides a request by the failure mode, because of this error.
    pub(super) fn undecided(&self, question: &mut Question, error: BackendError) -> Outcome {
        self.watch.emit(|| Event::BackendFailed(&error));
        let error = match &self.ladder.instead {
            Instead::Open => {
                question.decisions = self.unasked(question, &|limit| Decision {
                    source: Source::Allowed,
                    ..Decision::allow(0, limit, 0, Duration::ZERO)
                });
                return Outcome::Pass { charged: true };
            }
            Instead::Closed => error,
            Instead::Decide(fallback) => match ask_instead(question, fallback) {
                Ok(true) => {
                    for asked in &question.charges {
                        fallback.keep(asked.rule, asked.charge(question.keys()));
                    }
                    return Outcome::Pass { charged: true };
                }
                Ok(false) => return Outcome::Reject(Reason::ReducedCapacity),
                Err(error) => error,
            },
        };
        let asked_again = self.ladder.shut_for();
        question.decisions = self.unasked(question, &|limit| Decision {
            source: Source::Denied,
            ..Decision::reject(limit, 0, asked_again, Duration::ZERO)
        });
        question.cause = Some(error);
        Outcome::Reject(Reason::Backend)
    }

    fn by_quota(&self, question: &Question, allowed: bool, leave: Leave) -> Outcome {
        if allowed {
            return Outcome::Pass { charged: true };
        }
        self.release(question, leave);
        Outcome::Reject(Reason::Quota)
    }

    /// Builds one decision per charge without a count. `decision` receives the limit of the charge's quota.
    fn unasked(&self, question: &Question, decision: &dyn Fn(u64) -> Decision) -> Decisions {
        let charges = question.charges.iter();
        let quotas = charges.map(|asked| {
            let own = || self.rules[asked.rule].policy.quota();
            asked.quota.unwrap_or_else(own)
        });
        quotas.map(|quota| decision(quota.limit())).collect()
    }

    /// Charges the request to a lease while the circuit is open. Returns whether the lease had enough tokens.
    fn spend(&self, question: &mut Question) -> bool {
        let (Some(leasing), [asked]) = (&self.leasing, question.charges.as_slice()) else {
            return false;
        };
        let charge = asked.charge(question.sink.bytes());
        question.decisions.reject(1);
        leasing.spend(&charge, &mut question.decisions[0])
    }

    /// If this process has recently returned to the backend, reports the tokens that it has admitted alone. While other
    /// processes may still decide alone, also charges the request to this process's share.
    fn recover(&self, question: &mut Question, leave: Leave) -> Result<Leave, Reason> {
        let Some((fallback, is_shared)) = self.ladder.recovering() else {
            return Ok(leave);
        };
        if let Leave::Probe(_) = leave {
            return Ok(leave);
        }
        for asked in &question.charges {
            let charge = asked.charge(question.keys());
            let unreported = fallback.take_unreported(asked.rule, charge);
            let unreported = i64::try_from(unreported).unwrap_or(i64::MAX);
            self.correct(Source::Backend, asked.rule, charge, unreported);
        }
        if !is_shared {
            return Ok(leave);
        }
        match ask_instead(question, fallback) {
            Ok(true) => Ok(Leave::Shared),
            Ok(false) => Err(Reason::ReducedCapacity),
            Err(_) => Ok(leave),
        }
    }

    /// If the request was also charged to this process's share, refunds that charge, because the backend has not admitted the
    /// request.
    fn release(&self, question: &Question, leave: Leave) {
        if let (Leave::Shared, Instead::Decide(fallback)) = (leave, &self.ladder.instead) {
            for asked in &question.charges {
                fallback.release(asked.rule, asked.charge(question.keys()));
            }
        }
    }
}

/// Decides on a request with this process's share of each quota.
fn ask_instead(question: &mut Question, fallback: &Fallback) -> Result<bool, BackendError> {
    question.decisions.reject(question.charges.len());
    let keys = question.sink.bytes();
    let charges = question.charges.iter();
    let charges = charges.map(|asked| (asked.rule, asked.charge(keys)));
    fallback.acquire(charges, &mut question.decisions)
}
