use http::{HeaderMap, HeaderValue};

use super::{HttpLimits, put};
use crate::{
    Decided,
    headers::{self, Standing},
};

/// The fields for a response that is yet to come.
pub(crate) struct Stamp {
    policies: Option<HeaderValue>,
    state: HeaderValue,
    /// What most layers do not have, and so is not to make every future longer.
    standing: Option<Box<Standing>>,
}

impl Stamp {
    /// None if no policy was asked, or nobody has counted.
    pub(super) fn new(http: &HttpLimits, decided: Decided<'_>) -> Option<Self> {
        if !decided.has_counted() {
            return None;
        }
        let named = decided.named();
        let standing = http.answers.x_ratelimit.then(|| {
            let tightest = named.clone().map(|(_, decision)| decision);
            // Who is refused wants to know by whom; who is not, who will be first.
            tightest.min_by_key(|decision| (decision.allowed, decision.remaining))
        });
        let standing = standing.flatten().map(Standing::of).map(Box::new);
        let policies = match &http.policy_field {
            Some(policies) => Some(policies.clone()),
            None => policies_of(http, decided),
        };
        let state = named.map(|(rule, one)| (rule.quoted.as_str(), one));
        Some(Self {
            policies,
            state: headers::state(state)?,
            standing,
        })
    }

    pub(crate) fn put_on(self, fields: &mut HeaderMap) {
        if let Some(policies) = self.policies {
            put(fields, headers::RATELIMIT_POLICY, policies);
        }
        put(fields, headers::RATELIMIT, self.state);
        if let Some(standing) = self.standing {
            standing.put_on(fields);
        }
    }
}

/// With the quotas of this very key.
fn policies_of(http: &HttpLimits, decided: Decided<'_>) -> Option<HeaderValue> {
    let rules = http.limits.rules.iter().enumerate();
    headers::policies(rules.map(|(number, rule)| {
        let asked = decided.asked().find(|(asked, _)| asked.rule == number);
        let quota = asked.map_or(rule.policy.quota(), |(asked, _)| rule.quota(asked));
        (rule.quoted.as_str(), quota)
    }))
}
