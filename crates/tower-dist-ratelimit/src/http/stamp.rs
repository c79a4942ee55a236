use http::{HeaderMap, HeaderValue};

use super::{HttpLimits, put};
use crate::{
    Decided, Decision, headers,
    limits::{PolicyCharge, Rule},
};

/// The rate-limit headers of one response.
pub(crate) struct Stamp {
    policies: Option<HeaderValue>,
    state: HeaderValue,
    /// The numbers of the `X-RateLimit` headers. Boxed, because few layers use them and every response future has room
    /// for a stamp.
    x_ratelimit: Option<Box<[Option<u64>; 3]>>,
}

impl Stamp {
    /// Returns the headers with this value of `RateLimit`. `None` without a value, or if the failure mode decided without
    /// a count.
    pub(super) fn new(
        http: &HttpLimits,
        decided: Decided<'_>,
        state: Option<HeaderValue>,
    ) -> Option<Self> {
        let state = state.filter(|_| decided.has_counted())?;
        let x_ratelimit = http.answers.x_ratelimit.then(|| {
            let tightest = decided.tightest(|asked| !http.limits.rules[asked.rule].policy.hidden);
            tightest.map(|(asked, one)| headers::x_ratelimit(most(http, asked, one), one).into())
        });
        let x_ratelimit = x_ratelimit.flatten();
        let policies = match &http.policy_field {
            Some(policies) => Some(policies.clone()),
            None => policies_of(&http.limits.rules, decided),
        };
        Some(Self {
            policies,
            state,
            x_ratelimit,
        })
    }

    pub(crate) fn put_on(self, fields: &mut HeaderMap) {
        if let Some(policies) = self.policies {
            put(fields, headers::RATELIMIT_POLICY, policies);
        }
        put(fields, headers::RATELIMIT, self.state);
        // `X-RateLimit` headers are not lists. If the response already has one of them, this layer adds none.
        if let Some(own) = self.x_ratelimit
            && !headers::X_RATELIMIT
                .iter()
                .any(|name| fields.contains_key(name))
        {
            for (name, number) in headers::X_RATELIMIT.iter().zip(*own) {
                if let Some(number) = number {
                    put(fields, name.clone(), headers::integer(number));
                }
            }
        }
    }
}

/// Returns the value of `RateLimit`. `None` if no policy decided, or if all policies that decided are hidden.
pub(super) fn state_of(decided: Decided<'_>) -> Option<HeaderValue> {
    let shown = decided.named().filter(|(rule, _)| !rule.policy.hidden);
    headers::state(shown.map(|(rule, one)| (rule.quoted.as_str(), one)))
}

/// Returns the number for `X-RateLimit-Limit`: usually the limit, or the burst if the burst is larger. In a leaky
/// queue, the number of places counts as the burst. If the decision has another limit than the quota, such as this
/// instance's share, returns the limit of the decision.
fn most(http: &HttpLimits, asked: &PolicyCharge, decision: &Decision) -> u64 {
    let rule = &http.limits.rules[asked.rule];
    let quota = rule.quota(asked);
    if decision.limit == quota.limit() {
        rule.shown(quota).most().0
    } else {
        decision.limit
    }
}

/// Returns the value of `RateLimit-Policy` for one request, without hidden policies. A policy with a decision is shown
/// with its key's quota. A policy without a decision is shown with its own quota, or left out if it has an
/// [`only_if`](crate::Policy::only_if).
pub(crate) fn policies_of(rules: &[Rule], decided: Decided<'_>) -> Option<HeaderValue> {
    let rules = rules.iter().enumerate();
    headers::policies(rules.filter_map(|(number, rule)| {
        if rule.policy.hidden {
            return None;
        }
        let asked = decided.charges().find(|(asked, _)| asked.rule == number);
        let quota = match asked {
            Some((asked, _)) => rule.quota(asked),
            None if rule.policy.only_if.is_some() => return None,
            None => rule.policy.quota(),
        };
        Some((rule.quoted.as_str(), rule.shown(quota)))
    }))
}
