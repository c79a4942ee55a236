use super::{Applies, Quoted, Rule};
use crate::{
    BuildError, Policy, RequestPolicy,
    key::KeySink,
    policy::{CostOf, KeyOf, QuotaOf},
};

/// What a policy takes from a request.
pub(crate) struct Look<Req> {
    key: Option<KeyOf<Req>>,
    /// Or else always the same.
    cost: Result<CostOf<Req>, u64>,
    quota: Option<QuotaOf<Req>>,
}

impl<Req> Look<Req> {
    /// Splits a policy into what is about the backend and what is about the request. Fails if the policy is about HTTP.
    pub(crate) fn split(policy: RequestPolicy<Req>) -> Result<(Policy, Self), BuildError> {
        let RequestPolicy {
            policy,
            key,
            cost,
            quota,
        } = policy;
        let fixed = policy.only_fixed("unset where requests need not be HTTP")?;
        let cost = cost.ok_or(fixed);
        Ok((policy, Self { key, cost, quota }))
    }

    pub(crate) fn at(&self, request: &Req, rule: &Rule, sink: &mut KeySink) -> Applies {
        let key = match &self.key {
            None => 0..0,
            Some(write) => {
                let (key, found) = sink.key(|sink| write(request, sink));
                if !found && let Err(applies) = rule.without_key() {
                    return applies;
                }
                key
            }
        };
        Applies::To {
            key,
            cost: self
                .cost
                .as_ref()
                .map_or_else(|&cost| cost, |cost| cost(request)),
            quota: match &self.quota {
                None => Quoted::Own,
                Some(quota) => Quoted::Found(quota(request)),
            },
        }
    }
}
