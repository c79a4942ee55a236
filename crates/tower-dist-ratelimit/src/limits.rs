mod question;
mod register;
mod returning;
mod rule;
mod short;
mod waiting;

use std::{
    fmt,
    sync::{Arc, Once},
    time::Duration,
};

pub(crate) use self::{
    question::{Asked, Question},
    register::register,
    rule::{Applies, Quoted, Rule},
    short::Short,
    waiting::Waiting,
};
use self::{
    register::{check, register_checked},
    waiting::LookUp,
};
use crate::{
    BuildError, Decision, Decisions, Observer, Policy, Quota, Reason, Source,
    backend::{Alone, Answer, Backend, BackendError, JointDecision},
    handle::Corrections,
    key::KeySink,
    ladder::{FailureMode, Instead, Ladder, Leave, NotAsked},
    lease::Leasing,
    nearby::{Front, Nearby},
};

/// What every form of limit is made of: the policies, their store, and what happens when that fails.
pub(crate) struct Limits {
    pub(crate) backend: Arc<dyn Backend>,
    /// The only policy, if the store has a shorter way to it.
    pub(crate) alone: Option<Alone>,
    /// The backend, if it leases. Needed where the store is not asked.
    leasing: Option<Arc<Leasing>>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) deadline: Duration,
    pub(crate) ladder: Ladder,
    warned_of_late_quotas: Once,
    pub(crate) corrections: Corrections,
}

/// What to do with a request, if that is known already.
pub(crate) enum Outcome {
    Pass,
    Reject(Reason),
    Later(Waiting),
}

impl Limits {
    /// Asks the store about a request. `look` says whether and how a policy applies to it.
    pub(crate) fn decide<O: Observer>(
        &self,
        question: &mut Question,
        observer: &O,
        look: impl FnMut(&Rule, &mut KeySink) -> Applies,
    ) -> Outcome {
        match self.prepare(question, look) {
            Ok(lookups) if lookups.is_empty() => self.ask(question, observer),
            Ok(lookups) => Outcome::Later(Waiting::for_quotas(self.deadline, lookups)),
            Err(reason) => Outcome::Reject(reason),
        }
    }

    /// Finds out what to ask the store, but for the quotas that have to be looked up.
    pub(crate) fn prepare(
        &self,
        question: &mut Question,
        mut look: impl FnMut(&Rule, &mut KeySink) -> Applies,
    ) -> Result<Vec<LookUp>, Reason> {
        let mut lookups = Vec::new();
        for (number, rule) in self.rules.iter().enumerate() {
            match look(rule, &mut question.sink) {
                Applies::To { key, cost, quota } => {
                    let quota = match quota {
                        Quoted::Own => None,
                        Quoted::Found(quota) => usable(quota),
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

    /// Asks the backend, which has the whole deadline from now.
    pub(crate) fn ask<O: Observer>(&self, question: &mut Question, observer: &O) -> Outcome {
        if question.asked.is_empty() {
            return Outcome::Pass;
        }
        if question.asked.iter().any(Asked::is_shut_out) {
            // No store has to be asked about nothing.
            question.asked.retain(|asked| asked.is_shut_out());
            question.decisions = Decisions::rejected(question.asked.len());
            return Outcome::Reject(Reason::Quota);
        }
        match self.ladder.leave() {
            Ok(leave) => match self.recover(question, leave) {
                Ok(leave) => {
                    let answer = question.ask(&*self.backend);
                    self.outcome(question, answer, leave, observer)
                }
                Err(reason) => Outcome::Reject(reason),
            },
            Err(_) if question.spend(self.leasing.as_deref()) => Outcome::Pass,
            Err(error) => self.undecided(question, error, observer),
        }
    }

    /// What the store's answer means.
    pub(crate) fn outcome<O: Observer>(
        &self,
        question: &mut Question,
        answer: Answer,
        leave: Leave,
        observer: &O,
    ) -> Outcome {
        match answer {
            Answer::Done(allowed) => {
                self.ladder.answered_at_once(leave, observer);
                self.by_quota(question, allowed, leave)
            }
            Answer::Failed(error) => self.failed(question, leave, error, observer),
            Answer::Later(answer) => {
                self.ladder.answers_later();
                Outcome::Later(Waiting::for_backend(self.deadline, answer, leave))
            }
        }
    }

    fn decided<O: Observer>(
        &self,
        question: &mut Question,
        verdict: Result<JointDecision, BackendError>,
        leave: Leave,
        observer: &O,
    ) -> Outcome {
        match verdict {
            Ok(JointDecision { allowed, decisions }) if decisions.len() == question.asked.len() => {
                self.ladder.answered_later(leave, observer);
                question.decisions = decisions;
                self.by_quota(question, allowed, leave)
            }
            Ok(_) => {
                let error = BackendError::new("an answer without a decision on each charge");
                self.failed(question, leave, error, observer)
            }
            Err(error) => self.failed(question, leave, error, observer),
        }
    }

    /// The store was asked, and has not decided. It is not asked again: it may have charged the request already.
    fn failed<O: Observer>(
        &self,
        question: &mut Question,
        leave: Leave,
        error: BackendError,
        observer: &O,
    ) -> Outcome {
        self.ladder.failed(leave, &error, observer);
        self.release(question, leave);
        self.undecided(question, error, observer)
    }

    /// Decides as was chosen for when the store does not.
    fn undecided<O: Observer>(
        &self,
        question: &mut Question,
        error: BackendError,
        observer: &O,
    ) -> Outcome {
        observer.failed(&error);
        let error = match &self.ladder.instead {
            Instead::Open => {
                question.decisions = self.unasked(question, |limit| Decision {
                    source: Source::Allowed,
                    ..Decision::allow(0, limit, 0, Duration::ZERO)
                });
                return Outcome::Pass;
            }
            Instead::Closed => error,
            Instead::Decide(fallback) => match question.ask_instead(fallback) {
                Ok(true) => {
                    for asked in &question.asked {
                        fallback.keep(asked.rule, asked.charge(question.keys()));
                    }
                    return Outcome::Pass;
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

    fn by_quota(&self, question: &Question, allowed: bool, leave: Leave) -> Outcome {
        if allowed {
            return Outcome::Pass;
        }
        self.release(question, leave);
        Outcome::Reject(Reason::Quota)
    }

    fn warn_of_late_quotas(&self) {
        self.warned_of_late_quotas.call_once(|| {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                deadline = ?self.deadline,
                "a quota was not found in time; requests with such quotas are treated as if the store failed"
            );
        });
    }

    /// Gives back what is left of leases. A store that is left alone is not asked for this, either.
    pub(crate) async fn return_leases(&self) -> Result<(), BackendError> {
        match &self.leasing {
            None => Ok(()),
            Some(_) if self.ladder.shut_for().is_some() => Err(BackendError::new(NotAsked)),
            Some(leasing) => leasing.give_back().await,
        }
    }

    /// Decisions that nobody has made, from the limits.
    fn unasked(&self, question: &Question, decision: impl Fn(u64) -> Decision) -> Decisions {
        let asked = question.asked.iter();
        let quotas = asked.map(|asked| {
            let own = || self.rules[asked.rule].policy.quota();
            asked.quota.unwrap_or_else(own)
        });
        quotas.map(|quota| decision(quota.limit())).collect()
    }

    /// Checks a set of policies and has the store prepare for them.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        policies: Vec<Policy>,
        on_error: FailureMode,
        deadline: Duration,
        nearby: Nearby,
    ) -> Result<Self, BuildError> {
        if deadline.is_zero() || deadline > MAX_DEADLINE {
            let value = format_args!("{deadline:?}");
            let bound = format_args!("above 0 and at most {MAX_DEADLINE:?}");
            return Err(BuildError::new("backend_timeout", value, bound));
        }
        on_error.check()?;
        nearby.consistency.check()?;
        check(&*backend, &policies)?;
        let ladder = Ladder::new(on_error, deadline, &policies, backend.is_remote())?;
        let ledger = nearby.ledger(&policies)?;
        // The last step that can fail: a build that fails has registered nothing.
        let ids = register_checked(&*backend, &policies)?;
        let Front { backend, leasing } = nearby.front(backend, &policies, &ids, ledger, deadline);
        let alone = match ids[..] {
            [only] => backend.alone(only),
            _ => None,
        };
        let rules = policies.into_iter().zip(ids);
        Ok(Self {
            alone,
            rules: rules.map(|(policy, id)| Rule::new(policy, id)).collect(),
            backend,
            leasing,
            deadline,
            ladder,
            warned_of_late_quotas: Once::new(),
            corrections: Corrections::default(),
        })
    }
}

/// As the list of its policies.
impl fmt::Debug for Limits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let policies = self.rules.iter().map(|rule| &rule.policy);
        f.debug_list().entries(policies).finish()
    }
}

/// The longest deadline: longer than that no client waits for a decision.
const MAX_DEADLINE: Duration = Duration::from_secs(60);

/// A quota that could not have been built is none; but zero is, for who may do nothing.
fn usable(quota: Option<Quota>) -> Option<Quota> {
    quota.filter(|quota| quota.is_zero() || quota.check().is_ok())
}
