use std::{mem, slice, sync::Arc, time::Duration};

use tokio::time::sleep;

use super::{KeyUsage, PolicyUsage, SharedCounts};
use crate::{
    Decision, Quota,
    backend::{Answer, Backend, Charge, Timeout},
    terms::Terms,
};

/// A task that exchanges the used tokens of one key between this instance and the backend.
pub(super) struct Exchange {
    pub(super) shared: Arc<SharedCounts>,
    pub(super) policy: Arc<PolicyUsage>,
    pub(super) key: Box<[u8]>,
    /// Whether the task ended because the key was idle.
    pub(super) is_over: bool,
}

/// If the task ends early, for example because its runtime shuts down or the backend panics, removes the key. Its
/// unsent usage is lost. A later request for the key can start another task.
impl Drop for Exchange {
    fn drop(&mut self) {
        if !self.is_over {
            self.policy.keys().remove(&self.key);
        }
    }
}

impl Exchange {
    /// Exchanges about once per `period` while the key is in use. The wait after the first exchange is `first` instead
    /// of `period`.
    pub(super) async fn run(mut self, first: Duration, period: Duration) {
        let mut wait = first;
        while self.is_active() {
            self.once().await;
            sleep(wait).await;
            wait = period;
        }
        self.is_over = true;
    }

    /// Returns whether the key is still in use or has usage to report. Removes an idle key.
    fn is_active(&self) -> bool {
        let mut keys = self.policy.keys();
        let is_active = keys
            .get(&self.key)
            .is_some_and(|usage| usage.is_active || usage.unsent > 0);
        if !is_active {
            keys.remove(&self.key);
        }
        is_active
    }

    fn charge(&self, cost: u64, quota: Option<Quota>) -> Charge<'_> {
        Charge::new(self.policy.terms.id, &self.key, cost).with(quota)
    }

    /// Reports the unsent usage of this instance. Unless that fails, looks up the backend's count and adopts it. A
    /// report that may have arrived is not sent again. Of a report that certainly failed, keeps the tokens that still
    /// count here: after an outage, the backend must not count tokens that were regained meanwhile.
    async fn once(&self) {
        let usage = self.policy.keys().get_mut(&self.key).map(mem::take);
        let KeyUsage {
            mut unsent, quota, ..
        } = usage.unwrap_or_default();
        let counted = || self.counted(quota).map_or(0, |(_, used)| used);
        if unsent > 0 && !self.policy.terms.algorithm.is_bucket() {
            // The rest was used in windows that have ended.
            unsent = unsent.min(counted());
        }
        let delta = i64::try_from(unsent).unwrap_or(i64::MAX);
        let SharedCounts { inner, timeout, .. } = &*self.shared;
        if delta > 0 {
            let charge = self.charge(unsent, quota);
            match inner.settle(&[charge], delta) {
                Answer::Done(_) => {}
                Answer::Failed(_) => {
                    let counted = counted();
                    if let Some(usage) = self.policy.keys().get_mut(&self.key) {
                        usage.unsent = usage.unsent.saturating_add(unsent.min(counted));
                        usage.quota = usage.quota.or(quota);
                    }
                    return;
                }
                Answer::Later(answer) => {
                    if Timeout::new(*timeout, answer).await.is_err() {
                        return;
                    }
                }
            }
        }
        let (look, mut decision) = (self.charge(0, quota), Decision::default());
        let decision = match inner.acquire(&[look], slice::from_mut(&mut decision)) {
            Answer::Done(_) => Some(decision),
            Answer::Failed(_) => None,
            Answer::Later(answer) => {
                let verdict = Timeout::new(*timeout, answer).await.ok();
                verdict.and_then(|verdict| verdict.decisions.first().copied())
            }
        };
        if let Some(decision) = decision {
            self.adopt(look, &decision);
        }
    }

    /// Sets the local count to about the backend's count plus the unsent usage.
    fn adopt(&self, look: Charge<'_>, backend: &Decision) {
        let keys = self.policy.keys();
        let unsent = keys.get(&self.key).map_or(0, |usage| usage.unsent);
        let Some((mut own, here)) = self.counted(look.quota) else {
            return;
        };
        // The tokens to charge in the local memory, or to refund there if negative.
        let there = i128::from(self.used(look.quota, backend));
        let more = there + i128::from(unsent) - i128::from(here);
        let delta = i64::try_from(more).unwrap_or(0);
        own.cost = delta.unsigned_abs();
        drop(self.shared.memory.settle(&[own], delta));
    }

    /// Returns a charge of no tokens to the local memory, and the number of used tokens there.
    fn counted(&self, quota: Option<Quota>) -> Option<(Charge<'_>, u64)> {
        let own = Charge::new(self.policy.own, &self.key, 0).with(quota);
        let mut here = Decision::default();
        let answer = (self.shared.memory).acquire(&[own], slice::from_mut(&mut here));
        matches!(answer, Answer::Done(_)).then(|| (own, self.used(quota, &here)))
    }

    /// Returns the number of used tokens at a decision.
    fn used(&self, quota: Option<Quota>, decision: &Decision) -> u64 {
        let terms = &self.policy.terms;
        let quota = quota.unwrap_or(terms.quota);
        let terms = Terms { quota, ..*terms };
        // `remaining` is never negative, so it does not show debts. The `reset_after` of a bucket, the time until the
        // bucket is full, includes debts.
        let gained = terms.gained(decision.reset_after);
        gained.unwrap_or_else(|| decision.limit.saturating_sub(decision.remaining))
    }
}
