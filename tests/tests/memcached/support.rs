use std::time::Duration;

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::{
    Decision, Decisions, FailureMode, Limiter, Policy, Quota,
    backend::{Answer, Backend, BackendError, Charge, JointDecision, PolicyId},
};
use tower_dist_ratelimit_memcached::Memcached;

/// Longer than a busy machine keeps any test waiting.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// Patient, as the machine may be busy with other tests.
pub(crate) async fn connect(url: &str) -> Memcached {
    let builder = Memcached::builder(url).answer_timeout(Duration::from_secs(5));
    builder.connect().await.unwrap()
}

/// What the store says, or else its error: not what this process would decide instead.
pub(crate) fn limiter(memcached: &Memcached, policy: Policy) -> Limiter {
    let builder = Limiter::builder(memcached.clone(), policy);
    let builder = builder.failure_mode(FailureMode::Closed);
    builder.backend_timeout(LONG).build().unwrap()
}

/// One of each algorithm, of so many an hour.
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

/// Away from the end of an hour by this machine's clock, at which fixed windows begin anew; and of each of its
/// quarters, at which sub-windows do.
pub(crate) async fn away_from_boundaries() {
    let unix = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    if unix % 900 > 885 {
        sleep(Duration::from_secs(900 - unix % 900)).await;
    }
}

/// Policies that are decided together.
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

    /// Each policy alone.
    pub(crate) fn each(memcached: &Memcached, policies: Vec<Policy>) -> Vec<Self> {
        let alone = |policy| Self::new(memcached, &[policy]);
        policies.into_iter().map(alone).collect()
    }

    /// Asks without waiting.
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

    /// Takes so much from each policy's share of one key.
    pub(crate) async fn acquire(
        &self,
        key: &str,
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        let keys = vec![key; self.ids.len()];
        answered(self.ask(&keys, cost, cost)).await
    }

    /// One decision of the first policy.
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

/// What an answer says, however long it takes.
pub(crate) async fn answered(answer: Answer) -> Result<JointDecision, BackendError> {
    match answer {
        Answer::Later(later) => later.await,
        Answer::Failed(error) => Err(error),
        other => panic!("{other:?} from a server"),
    }
}

/// Repeats a question until it is answered as it should, for at most 20 s.
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
