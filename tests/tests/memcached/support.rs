use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{
    Decision, Decisions, FailureMode, Limiter, Policy, Quota,
    backend::{Answer, Backend, BackendError, Charge, JointDecision, PolicyId},
};
use tower_dist_ratelimit_memcached::Memcached;

/// Longer than any wait of a test on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Connects with long timeouts, for busy machines.
pub(crate) async fn connect(url: &str) -> Memcached {
    let builder = Memcached::builder(url).answer_timeout(Duration::from_secs(5));
    builder.connect().await.unwrap()
}

/// A limiter that returns the backend's decision or its error, without a local fallback.
pub(crate) fn limiter(memcached: &Memcached, policy: Policy) -> Limiter {
    let builder = Limiter::builder(memcached.clone(), policy);
    let builder = builder.failure_mode(FailureMode::Closed);
    builder.backend_timeout(LONG).build().unwrap()
}

/// One policy of each algorithm, with this limit per hour.
pub(crate) fn every(limit: u64) -> Vec<Policy> {
    let quota = Quota::new(limit, HOUR);
    vec![
        Policy::new("bucket", quota),
        Policy::new("meter", quota).leaky_bucket(),
        Policy::new("dynamic", quota).dynamic_quotas(),
        Policy::new("queue", quota).leaky_queue(2 * HOUR),
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("phase", quota).fixed_window_staggered(),
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("two", quota).sliding_window(),
        Policy::new("sub", quota).sliding_window_buckets(4),
        Policy::new("whole", quota).sliding_window_strict(4),
    ]
}

/// Waits until the end of an hour by this machine's clock is far away, because fixed windows end there; the same holds
/// for quarters of an hour and buckets of sliding windows.
pub(crate) async fn away_from_boundaries() {
    let unix = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    if unix % 900 > 885 {
        sleep(Duration::from_secs(900 - unix % 900)).await;
    }
}

/// Policies that are decided in one decision.
#[derive(Clone)]
pub(crate) struct Set {
    pub(crate) memcached: Memcached,
    pub(crate) ids: Vec<PolicyId>,
}

impl Set {
    pub(crate) fn new(memcached: &Memcached, policies: &[Policy]) -> Self {
        Self {
            memcached: memcached.clone(),
            ids: memcached.register(policies).unwrap(),
        }
    }

    /// A set for each policy.
    pub(crate) fn each(memcached: &Memcached, policies: Vec<Policy>) -> Vec<Self> {
        let alone = |policy| Self::new(memcached, &[policy]);
        policies.into_iter().map(alone).collect()
    }

    /// Sends a charge, without waiting for the answer.
    pub(crate) fn ask(&self, keys: &[&str], cost: u64, want: u64) -> Answer {
        let charges: Vec<Charge<'_>> = self
            .ids
            .iter()
            .zip(keys)
            .map(|(&id, key)| Charge::new(id, key.as_bytes(), cost).up_to(want))
            .collect();
        let mut out = Decisions::rejected(charges.len());
        self.memcached.acquire(&charges, &mut out)
    }

    /// Charges the key to each policy.
    pub(crate) async fn acquire(
        &self,
        key: &str,
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        let keys = vec![key; self.ids.len()];
        answered(self.ask(&keys, cost, cost)).await
    }

    /// Charges the first policy, and returns its decision.
    pub(crate) async fn take(&self, key: &str, cost: u64) -> Result<Decision, BackendError> {
        Ok(self.acquire(key, cost).await?.decisions[0])
    }

    pub(crate) async fn look(&self, key: &str) -> Decision {
        self.take(key, 0).await.unwrap()
    }

    pub(crate) async fn settle(&self, key: &str, cost: u64, delta: i64) {
        let charge = Charge::new(self.ids[0], key.as_bytes(), cost);
        answered(self.memcached.settle(&[charge], delta))
            .await
            .unwrap();
    }
}

/// Waits for an answer.
pub(crate) async fn answered(answer: Answer) -> Result<JointDecision, BackendError> {
    match answer {
        Answer::Later(later) => later.await,
        Answer::Failed(error) => Err(error),
        other => panic!("{other:?} from a server"),
    }
}

/// Repeats a check until it returns a value, for at most 20 s.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let end = Instant::now() + LONG;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(Instant::now() < end, "waited too long for {what}");
        sleep(Duration::from_millis(20)).await;
    }
}
