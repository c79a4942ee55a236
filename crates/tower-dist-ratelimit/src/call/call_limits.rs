use std::sync::Arc;

use crate::{
    Quota, RateLimited, RequestPolicy,
    key::KeySink,
    limits::{Applies, Check, Limits, Outcome, PolicyCharge, Rule},
};

/// The limits and the policies of one layer, shared by all its services.
pub(crate) struct CallLimits<Req> {
    pub(crate) limits: Arc<Limits>,
    pub(super) policies: Vec<RequestPolicy<Req>>,
}

impl<Req> CallLimits<Req> {
    /// Returns a closure that fills in the request's charge to a policy, and returns whether the
    /// policy applies.
    #[inline]
    pub(crate) fn apply(
        &self,
        request: &Req,
    ) -> impl FnMut(&Rule, &mut KeySink, &mut PolicyCharge) -> Applies {
        |rule, sink, asked| {
            let policy = &self.policies[asked.rule];
            if let Some(write) = &policy.key {
                let (key, found) = sink.key(|sink| write(request, sink));
                if !found && let Err(applies) = rule.without_key() {
                    return applies;
                }
                asked.key = key;
            }
            if let Some(cost) = &policy.cost {
                asked.cost = cost(request);
            }
            if let Some(quota) = &policy.quota {
                asked.quota = quota(request).and_then(Quota::usable);
            }
            Applies::Yes
        }
    }
}

impl Limits {
    /// Emits the events of an outcome. Turns a rejection into an error, except in shadow mode.
    pub(crate) fn admit(&self, outcome: Outcome, check: &Check) -> Result<(), RateLimited> {
        match self.report(outcome, check) {
            Outcome::Reject(reason) => Err(RateLimited::new(&self.rules, check, reason)),
            Outcome::Pass { .. } | Outcome::Later => Ok(()),
        }
    }
}
