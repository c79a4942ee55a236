use std::time::Duration;

use smallvec::SmallVec;

use crate::{Decision, Decisions, backend::Charge, terms::Terms};

/// A remembered rejection. Times are in nanoseconds since the cache was created.
pub(super) struct Denial {
    /// Hash of the request's policies, keys and quotas.
    pub(super) tag: u64,
    /// The number of changes of all keys when the request was sent.
    pub(super) changes: u64,
    /// The rejection is repeated until this time at the latest.
    pub(super) until: u64,
    /// When the backend's answer arrived.
    pub(super) arrived: u64,
    pub(super) costs: SmallVec<[u64; 2]>,
    pub(super) decisions: Decisions,
}

impl Denial {
    /// Returns whether the rejection applies to charges of these costs. A charge that was rejected must cost at least
    /// as much as before. A charge that was allowed must cost the same.
    pub(super) fn covers(&self, charges: &[Charge<'_>]) -> bool {
        let known = self.costs.iter().zip(self.decisions.iter());
        self.costs.len() == charges.len()
            && known.zip(charges).all(|((&cost, decision), charge)| {
                if decision.allowed {
                    charge.cost == cost
                } else {
                    charge.cost >= cost
                }
            })
    }

    /// Returns the decision on the charge with the index `number` at `now`. The remaining tokens stay as the
    /// backend reported them.
    pub(super) fn decision(&self, number: usize, cost: u64, terms: Terms, now: u64) -> Decision {
        let denied = self.decisions[number];
        let since = Duration::from_nanos(now.saturating_sub(self.arrived));
        let more = terms.time(cost.saturating_sub(self.costs[number]));
        let wait = denied.retry_after.filter(|_| cost <= terms.max_tokens());
        Decision {
            retry_after: if denied.allowed {
                denied.retry_after
            } else {
                wait.map(|wait| wait.saturating_sub(since).saturating_add(more))
            },
            reset_after: denied.reset_after.saturating_sub(since),
            ..denied
        }
    }
}
