//! One store for all instances, some way off.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::sleep;
use tower_dist_ratelimit::backend::{
    Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, JointDecision, Memory, PolicyId,
};
use tower_dist_ratelimit::{BuildError, Decision, Decisions, Policy};

use super::ROUND_TRIP;

/// The one that decides in memory, a round trip later, for a fleet with one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    memory: Memory,
    /// Of the first who has registered: the fleet's policy is the same.
    ids: Mutex<Vec<PolicyId>>,
    trips: AtomicU32,
}

impl Store {
    pub(crate) fn trips(&self) -> u32 {
        self.0.trips.load(Ordering::Relaxed)
    }

    /// The answer is sent half-way through, and is here at the end. Requests come one at a time, so that deciding at the beginning
    /// makes no other difference than that all is decided half a round trip sooner.
    fn later(&self, answer: Answer, decisions: Decisions) -> Answer {
        self.0.trips.fetch_add(1, Ordering::Relaxed);
        let Answer::Done(allowed) = answer else {
            return answer;
        };
        Answer::Later(Box::pin(async move {
            sleep(ROUND_TRIP).await;
            Ok(JointDecision { allowed, decisions })
        }))
    }
}

impl Backend for Store {
    fn capabilities(&self) -> Capabilities {
        Capabilities { max_policies: 1 }
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let mut ids = self.0.ids.lock().unwrap_or_else(PoisonError::into_inner);
        if ids.is_empty() {
            *ids = self.0.memory.register(policies)?;
        }
        Ok(ids.clone())
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        let mut decisions = Decisions::rejected(charges.len());
        let answer = self.0.memory.acquire(charges, &mut decisions);
        self.later(answer, decisions)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.later(self.0.memory.settle(charges, delta), Decisions::rejected(0))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.0.memory.reset(policy, key)
    }
}
