use super::{Applies, PolicyCharge, Rule};
use crate::{Quota, RequestPolicy, key::KeySink};

impl<Req> RequestPolicy<Req> {
    /// Returns whether the policy applies to a request, and fills in its charge.
    #[inline]
    pub(crate) fn look(
        &self,
        request: &Req,
        rule: &Rule,
        sink: &mut KeySink,
        asked: &mut PolicyCharge,
    ) -> Applies {
        if let Some(write) = &self.key {
            let (key, found) = sink.key(|sink| write(request, sink));
            if !found && let Err(applies) = rule.without_key() {
                return applies;
            }
            asked.key = key;
        }
        if let Some(cost) = &self.cost {
            asked.cost = cost(request);
        }
        if let Some(quota) = &self.quota {
            asked.quota = quota(request).and_then(Quota::usable);
        }
        Applies::Yes
    }
}
