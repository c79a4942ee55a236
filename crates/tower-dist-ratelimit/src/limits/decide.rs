use std::{slice, time::Duration};

use super::{
    Applies, Asked, Limits, Outcome, Question, Quoted, Rule, Waiting, question::is_zero,
    waiting::LookUp,
};
use crate::{
    Decided, Decision, Decisions, Event, Reason, Rejection, Source,
    backend::{Answer, BackendError, JointDecision},
    key::KeySink,
    ladder::{Fallback, Instead, Leave},
};

impl Limits {
    /// Decides on a request and emits the event of its outcome.
    ///
    /// `look` returns whether and how the policy of a number applies to the request. `passed` builds the caller's value
    /// from the decisions on a request that passes; its second argument is whether the request was charged. `question`
    /// stays `None` on the fast path.
    #[inline]
    pub(crate) fn decide<T>(
        &self,
        question: &mut Option<Question>,
        mut look: impl FnMut(usize, &Rule, &mut KeySink) -> Applies,
        passed: impl FnOnce(Decided<'_>, bool) -> T,
    ) -> Outcome<T> {
        let [rule] = self.rules.as_slice() else {
            let question = question.insert(Question::default());
            let outcome = self.decide_together(question, look);
            return self.tell(outcome, question, passed);
        };
        // The fast path builds no question. Only requests that wait or are rejected need one.
        let mut sink = KeySink::new();
        let (question, outcome) = match (look(0, rule, &mut sink), self.fast_leave()) {
            (
                Applies::To {
                    key,
                    cost,
                    quota: Quoted::Known(quota),
                },
                Some(leave),
            ) if !is_zero(quota) => {
                let asked = Asked {
                    rule: 0,
                    id: rule.id,
                    key,
                    cost,
                    quota,
                };
                let keys = sink.bytes();
                let mut decision;
                let answer = if let Some(alone) = &self.alone {
                    decision = alone.charge(asked.key(keys), cost);
                    Answer::Done(decision.allowed)
                } else {
                    decision = Decision::default();
                    let charge = asked.charge(keys);
                    let out = slice::from_mut(&mut decision);
                    self.backend.acquire(slice::from_ref(&charge), out)
                };
                if matches!(answer, Answer::Done(true)) && decision.delay.is_zero() {
                    self.ladder.answered_at_once(leave);
                    let decided = Decided::one(&self.rules, &asked, &decision, keys);
                    self.watch.emit(|| Event::Allowed(decided));
                    return Outcome::Pass(passed(decided, true));
                }
                let question = question.insert(Question::one(sink, asked, decision));
                let outcome = self.outcome(question, answer, leave);
                (question, outcome)
            }
            (applies, _) => {
                let question = question.insert(Question::of(sink));
                let mut applies = Some(applies);
                let again = |_, _: &Rule, _: &mut KeySink| applies.take().unwrap_or(Applies::No);
                let outcome = self.decide_together(question, again);
                (question, outcome)
            }
        };
        self.tell(outcome, question, passed)
    }

    /// Returns permission to query the backend, unless the circuit or a recent outage requires more checks.
    #[inline]
    fn fast_leave(&self) -> Option<Leave> {
        match &self.alone {
            Some(_) => Some(Leave::Quiet),
            None => self.ladder.leave_if_closed(),
        }
    }

    /// Emits the event of an outcome. In shadow mode a rejected request passes.
    pub(crate) fn tell<T>(
        &self,
        outcome: Outcome<()>,
        question: &Question,
        passed: impl FnOnce(Decided<'_>, bool) -> T,
    ) -> Outcome<T> {
        let decided = Decided::new(&self.rules, question);
        match outcome {
            Outcome::Pass(()) => {
                self.watch.emit(|| Event::Allowed(decided));
                let delay = question.delay();
                if !delay.is_zero() {
                    self.watch.emit(|| Event::Waited(delay));
                }
                Outcome::Pass(passed(decided, true))
            }
            Outcome::Reject(reason) => {
                let rejection = Rejection::new(&self.rules, question, reason);
                if self.shadow {
                    self.watch.emit(|| Event::Shadowed(rejection));
                    return Outcome::Pass(passed(decided, false));
                }
                self.watch.emit(|| Event::Rejected(rejection));
                Outcome::Reject(reason)
            }
            Outcome::Later(waiting) => Outcome::Later(waiting),
        }
    }

    /// Decides on a request without the fast path, and emits no event of the outcome.
    pub(crate) fn decide_together(
        &self,
        question: &mut Question,
        look: impl FnMut(usize, &Rule, &mut KeySink) -> Applies,
    ) -> Outcome<()> {
        match self.prepare(question, look) {
            Ok(lookups) if lookups.is_empty() => self.ask(question),
            Ok(lookups) => Outcome::Later(Waiting::for_quotas(self.timeout, lookups)),
            Err(reason) => Outcome::Reject(reason),
        }
    }

    /// Collects the charges of a request and returns the quota look-ups that are still needed. Fails if a policy
    /// rejects the request because its key is missing.
    pub(crate) fn prepare(
        &self,
        question: &mut Question,
        mut look: impl FnMut(usize, &Rule, &mut KeySink) -> Applies,
    ) -> Result<Vec<LookUp>, Reason> {
        let mut lookups = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            match look(number, rule, &mut question.sink) {
                Applies::To { key, cost, quota } => {
                    let quota = match quota {
                        Quoted::Known(quota) => quota,
                        Quoted::LookedUp(quota) => {
                            lookups.push((question.asked.len(), quota));
                            None
                        }
                    };
                    question.asked.push(Asked {
                        rule: number,
                        id: rule.id,
                        key,
                        cost,
                        quota,
                    });
                }
                Applies::No => {}
                Applies::Rejects(reason) => {
                    question.asked.clear();
                    question.keyless = number;
                    return Err(reason);
                }
            }
        }
        Ok(lookups)
    }

    /// Queries the backend, with the whole timeout from now.
    pub(crate) fn ask(&self, question: &mut Question) -> Outcome<()> {
        if question.asked.is_empty() {
            return Outcome::Pass(());
        }
        if question.asked.iter().any(Asked::is_shut_out) {
            // A limit of zero needs no backend.
            question.asked.retain(|asked| asked.is_shut_out());
            question.decisions = Decisions::rejected(question.asked.len());
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
            Err(_) if self.spend(question) => Outcome::Pass(()),
            Err(error) => self.undecided(question, error),
        }
    }

    /// Handles the backend's answer.
    fn outcome(&self, question: &mut Question, answer: Answer, leave: Leave) -> Outcome<()> {
        match answer {
            Answer::Done(allowed) => {
                self.ladder.answered_at_once(leave);
                self.by_quota(question, allowed, leave)
            }
            Answer::Failed(error) => self.failed(question, leave, error),
            Answer::Later(answer) => {
                self.ladder.answers_later();
                Outcome::Later(Waiting::for_backend(self.timeout, answer, leave))
            }
        }
    }

    pub(super) fn decided(
        &self,
        question: &mut Question,
        verdict: Result<JointDecision, BackendError>,
        leave: Leave,
    ) -> Outcome<()> {
        match verdict {
            Ok(JointDecision { allowed, decisions }) if decisions.len() == question.asked.len() => {
                self.ladder.answered_later(leave);
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

    /// Handles an error of the backend. The request is not sent again, because the backend may have charged it already.
    fn failed(&self, question: &mut Question, leave: Leave, error: BackendError) -> Outcome<()> {
        self.ladder.failed(leave, &error);
        self.release(question, leave);
        self.undecided(question, error)
    }

    /// Decides by the failure mode.
    pub(super) fn undecided(&self, question: &mut Question, error: BackendError) -> Outcome<()> {
        self.watch.emit(|| Event::BackendFailed(&error));
        let error = match &self.ladder.instead {
            Instead::Open => {
                question.decisions = self.unasked(question, |limit| Decision {
                    source: Source::Allowed,
                    ..Decision::allow(0, limit, 0, Duration::ZERO)
                });
                return Outcome::Pass(());
            }
            Instead::Closed => error,
            Instead::Decide(fallback) => match ask_instead(question, fallback) {
                Ok(true) => {
                    for asked in &question.asked {
                        fallback.keep(asked.rule, asked.charge(question.keys()));
                    }
                    return Outcome::Pass(());
                }
                Ok(false) => return Outcome::Reject(Reason::ReducedCapacity),
                Err(error) => error,
            },
        };
        let asked_again = self.ladder.shut_for();
        question.decisions = self.unasked(question, |limit| Decision {
            source: Source::Denied,
            ..Decision::reject(limit, 0, asked_again, Duration::ZERO)
        });
        question.cause = Some(error);
        Outcome::Reject(Reason::Backend)
    }

    fn by_quota(&self, question: &Question, allowed: bool, leave: Leave) -> Outcome<()> {
        if allowed {
            return Outcome::Pass(());
        }
        self.release(question, leave);
        Outcome::Reject(Reason::Quota)
    }

    /// Builds one decision per charge from the limits alone.
    fn unasked(&self, question: &Question, decision: impl Fn(u64) -> Decision) -> Decisions {
        let asked = question.asked.iter();
        let quotas = asked.map(|asked| {
            let own = || self.rules[asked.rule].policy.quota();
            asked.quota.unwrap_or_else(own)
        });
        quotas.map(|quota| decision(quota.limit())).collect()
    }

    /// Charges the request to a lease, while the backend is not queried.
    fn spend(&self, question: &mut Question) -> bool {
        let (Some(leasing), [asked]) = (&self.leasing, question.asked.as_slice()) else {
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
        for asked in &question.asked {
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

    /// Refunds the charge to the share, for a request that the backend has not admitted.
    fn release(&self, question: &Question, leave: Leave) {
        if let (Leave::Shared, Instead::Decide(fallback)) = (leave, &self.ladder.instead) {
            for asked in &question.asked {
                fallback.release(asked.rule, asked.charge(question.keys()));
            }
        }
    }
}

/// Decides with this process's share.
fn ask_instead(question: &mut Question, fallback: &Fallback) -> Result<bool, BackendError> {
    question.decisions.reject(question.asked.len());
    let keys = question.sink.bytes();
    let asked = question.asked.iter();
    let charges = asked.map(|asked| (asked.rule, asked.charge(keys)));
    fallback.acquire(charges, &mut question.decisions)
}
