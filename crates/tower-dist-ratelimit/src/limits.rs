mod rule;
mod ruling;

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Response, header::RETRY_AFTER};
use smallvec::SmallVec;

use self::rule::Applies;
pub(crate) use self::{
    rule::Rule,
    ruling::{Denied, Outcome, Ruling, Stamp},
};
use crate::{
    BuildError, Decision, Decisions, Fields, OnError, Policy, Reason, Refusal, Refuse,
    backend::{Answer, Backend, BackendError, Bounded, Charge, PolicyId, Verdict},
    headers,
    key::{KeySink, RequestHead},
    ladder::Health,
};

/// The settings and the state of one layer, shared by all its services.
pub(crate) struct Limits {
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) rules: Vec<Rule>,
    pub(crate) policy_field: Option<HeaderValue>,
    pub(crate) fields: Fields,
    pub(crate) on_error: OnError,
    pub(crate) deadline: Duration,
    pub(crate) health: Health,
}

/// The rules that apply to a request, by number.
pub(crate) type Asked = SmallVec<[usize; 2]>;

impl Limits {
    /// Asks the backend about a request.
    pub(crate) fn decide(self: &Arc<Self>, head: RequestHead<'_>) -> Outcome {
        let mut sink = KeySink::new();
        // One policy is what most layers have. Without the vectors it takes half the time.
        if let [rule] = self.rules.as_slice() {
            return match rule.apply(head, &mut sink) {
                Applies::To(key) => {
                    let cost = rule.policy.cost.of(head);
                    let charge = Charge::new(rule.id, &sink.bytes()[key], cost);
                    self.ask(
                        Asked::from_buf_and_len([0; 2], 1),
                        &[charge],
                        &mut [Decision::default()],
                    )
                }
                Applies::No => Outcome::Now(Ruling::Pass(None)),
                Applies::ButHasNoKey => {
                    Outcome::Now(Ruling::Refuse(Denied::because(Reason::MissingKey)))
                }
            };
        }
        let mut asked = Asked::new();
        let mut keys = SmallVec::<[_; 4]>::new();
        for (number, rule) in self.rules.iter().enumerate() {
            match rule.apply(head, &mut sink) {
                Applies::To(key) => {
                    asked.push(number);
                    keys.push(key);
                }
                Applies::No => {}
                Applies::ButHasNoKey => {
                    return Outcome::Now(Ruling::Refuse(Denied::because(Reason::MissingKey)));
                }
            }
        }
        if asked.is_empty() {
            return Outcome::Now(Ruling::Pass(None));
        }
        let rules = asked.iter().map(|&number| &self.rules[number]);
        let charges: SmallVec<[Charge<'_>; 4]> = rules
            .zip(keys)
            .map(|(rule, key)| Charge::new(rule.id, &sink.bytes()[key], rule.policy.cost.of(head)))
            .collect();
        let mut out = Decisions::refused(charges.len());
        self.ask(asked, &charges, &mut out)
    }

    fn ask(
        self: &Arc<Self>,
        asked: Asked,
        charges: &[Charge<'_>],
        out: &mut [Decision],
    ) -> Outcome {
        match self.backend.acquire(charges, out) {
            Answer::Done(true) => Outcome::Now(self.pass(&asked, out)),
            Answer::Done(false) => Outcome::Now(self.refuse(asked, out.iter().copied().collect())),
            Answer::Failed(error) => Outcome::Now(self.failed(&error)),
            Answer::Later(answer) => Outcome::Later {
                answer: Bounded::new(self.deadline, answer),
                asked,
            },
        }
    }

    /// What to do once the store has answered.
    pub(crate) fn decided(
        self: &Arc<Self>,
        asked: Asked,
        verdict: Result<Verdict, BackendError>,
    ) -> Ruling {
        match verdict {
            Ok(Verdict {
                allowed: true,
                decisions,
            }) => self.pass(&asked, &decisions),
            Ok(Verdict {
                allowed: false,
                decisions,
            }) => self.refuse(asked, decisions),
            Err(error) => self.failed(&error),
        }
    }

    fn pass(self: &Arc<Self>, asked: &[usize], decisions: &[Decision]) -> Ruling {
        self.health.answered();
        Ruling::Pass(self.stamp(asked, decisions))
    }

    fn refuse(&self, asked: Asked, decisions: Decisions) -> Ruling {
        self.health.answered();
        Ruling::Refuse(Denied {
            reason: Reason::Quota,
            asked,
            decisions,
        })
    }

    fn failed(&self, error: &BackendError) -> Ruling {
        self.health.failed(error);
        match self.on_error {
            OnError::Allow => Ruling::Pass(None),
            OnError::Deny => Ruling::Refuse(Denied::because(Reason::Backend)),
        }
    }

    /// The response to a request that must not pass: what the strategy makes, with what every refusal has.
    pub(crate) fn refusal<B>(&self, refuse: &impl Refuse<B>, denied: &Denied) -> Response<B> {
        let refusal = Refusal::new(self, denied);
        let mut response = refuse.refuse(&refusal);
        let fields = response.headers_mut();
        if let Some(wait) = refusal.retry_after()
            && !fields.contains_key(RETRY_AFTER)
        {
            put(fields, RETRY_AFTER, headers::retry_after(wait));
        }
        if self.fields != Fields::Never
            && let Some(state) = self.state_field(&denied.asked, &denied.decisions)
        {
            self.put_fields(fields, state);
        }
        response
    }

    fn stamp(self: &Arc<Self>, asked: &[usize], decisions: &[Decision]) -> Option<Stamp> {
        let tell = match self.fields {
            Fields::Always => true,
            Fields::NearLimit(_) => asked
                .iter()
                .zip(decisions.iter())
                .any(|(&number, decision)| decision.remaining <= self.rules[number].near),
            Fields::OnRefusal | Fields::Never => false,
        };
        let state = if tell {
            self.state_field(asked, decisions)
        } else {
            None
        }?;
        Some(Stamp {
            limits: Arc::clone(self),
            state,
        })
    }

    fn state_field(&self, asked: &[usize], decisions: &[Decision]) -> Option<HeaderValue> {
        let decided = asked.iter().zip(decisions.iter());
        let named =
            decided.map(|(&number, decision)| (self.rules[number].quoted.as_str(), decision));
        headers::state(named).filter(|value| !value.is_empty())
    }

    fn put_fields(&self, fields: &mut HeaderMap, state: HeaderValue) {
        if let Some(policies) = &self.policy_field {
            put(fields, headers::RATELIMIT_POLICY, policies.clone());
        }
        put(fields, headers::RATELIMIT, state);
    }
}

/// Appends, so that what an inner service has said stays; unless the message has as many fields as it can have.
fn put(fields: &mut HeaderMap, name: http::HeaderName, value: HeaderValue) {
    let _ = fields.try_append(name, value);
}

/// Checks a set of policies and registers it.
pub(crate) fn register(
    backend: &dyn Backend,
    policies: &[Policy],
) -> Result<Vec<PolicyId>, BuildError> {
    let most = backend.capabilities().max_policies;
    if policies.is_empty() {
        return Err(BuildError::new("number of policies", 0, "at least 1"));
    }
    if policies.len() > most {
        let bound = format_args!("at most {most} with this backend");
        return Err(BuildError::new("number of policies", policies.len(), bound));
    }
    for (number, policy) in policies.iter().enumerate() {
        policy.check()?;
        if policies[..number]
            .iter()
            .any(|other| other.name() == policy.name())
        {
            return Err(BuildError::new(
                "name",
                format_args!("{:?}", policy.name()),
                "another for each policy",
            )
            .in_policy(policy.name()));
        }
    }
    let ids = backend.register(policies)?;
    if ids.len() != policies.len() {
        // Else the policies without one would let everything through.
        let value = format_args!(
            "one that names {} of {} policies",
            ids.len(),
            policies.len()
        );
        return Err(BuildError::new("backend", value, "one that names each"));
    }
    Ok(ids)
}
