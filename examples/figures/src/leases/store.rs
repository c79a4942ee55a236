//! One backend for all instances, at a distance.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;
use tower_dist_ratelimit::backend::{
    Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, PolicyId,
};
use tower_dist_ratelimit::{BuildError, Decision, Decisions, Policy};

/// A backend that decides in memory and answers after a round trip. It holds one policy.
#[derive(Clone, Debug, Default)]
pub(crate) struct Store {
    shared: Arc<Shared>,
    round_trip: Duration,
}

#[derive(Debug, Default)]
struct Shared {
    memory: Memory,
    /// Ids of the first registration. All instances register the same policy.
    ids: Mutex<Vec<PolicyId>>,
    round_trips: AtomicU32,
}

impl Store {
    /// Returns the same backend as seen from a distance of `round_trip`.
    pub(crate) fn at(&self, round_trip: Duration) -> Self {
        Self {
            round_trip,
            ..self.clone()
        }
    }

    /// Number of round trips of all instances.
    pub(crate) fn round_trips(&self) -> u32 {
        self.shared.round_trips.load(Ordering::Relaxed)
    }

    /// Delays the answer by a round trip.
    ///
    /// The decision is made at the start of the round trip instead of the middle, in the order in which requests are
    /// sent.
    fn later(&self, answer: Answer, decisions: Decisions) -> Answer {
        self.shared.round_trips.fetch_add(1, Ordering::Relaxed);
        let Answer::Done(allowed) = answer else {
            return answer;
        };
        let round_trip = self.round_trip;
        Answer::Later(Box::pin(async move {
            sleep(round_trip).await;
            Ok(JointDecision { allowed, decisions })
        }))
    }
}

impl Backend for Store {
    fn max_policies(&self) -> usize {
        1
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let mut ids = self
            .shared
            .ids
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if ids.is_empty() {
            *ids = self.shared.memory.register(policies)?;
        }
        Ok(ids.clone())
    }

    fn acquire(&self, charges: &[Charge<'_>], _: &mut [Decision]) -> Answer {
        let mut decisions = Decisions::rejected(charges.len());
        let answer = self.shared.memory.acquire(charges, &mut decisions);
        self.later(answer, decisions)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let answer = self.shared.memory.settle(charges, delta);
        self.later(answer, Decisions::rejected(0))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.shared.memory.reset(policy, key)
    }
}
