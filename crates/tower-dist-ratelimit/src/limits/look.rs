use super::{Applies, Quoted, Rule};
use crate::{RequestPolicy, key::KeySink};

impl<Req> RequestPolicy<Req> {
    /// Returns whether and how the policy applies to a request.
    pub(crate) fn look(&self, request: &Req, rule: &Rule, sink: &mut KeySink) -> Applies {
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
            cost: match &self.cost {
                None => rule.policy.cost,
                Some(cost) => cost(request),
            },
            quota: match &self.quota {
                None => Quoted::Known(None),
                Some(quota) => Quoted::found(quota(request)),
            },
        }
    }
}
