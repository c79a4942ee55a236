use std::time::Duration;

use tests::servers::Redis as Server;
use tower_dist_ratelimit::{
    Decision, Decisions, FailureMode, Limiter, Policy,
    backend::{Answer, Backend, BackendError, Charge, JointDecision, PolicyId},
};
use tower_dist_ratelimit_redis::Redis;

/// Longer than a busy machine keeps any test waiting.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn connect(url: &str) -> Redis {
    Redis::connect(url).await.unwrap()
}

/// What the store says, or else its error: not what this process would decide instead. Patient, as the machine may be busy
/// with other tests; but pauses after failures grow with this.
pub(crate) fn limiter(redis: &Redis, policy: Policy) -> Limiter {
    let builder = Limiter::builder(redis.clone(), policy);
    let builder = builder.failure_mode(FailureMode::Closed);
    builder
        .backend_timeout(Duration::from_secs(1))
        .build()
        .unwrap()
}

/// What an answer says, however long it takes.
pub(crate) async fn answered(answer: Answer) -> Result<JointDecision, BackendError> {
    match answer {
        Answer::Later(later) => later.await,
        Answer::Failed(error) => Err(error),
        other => panic!("{other:?} from a server"),
    }
}

/// Policies that are decided together, by key.
pub(crate) struct Set {
    pub(crate) redis: Redis,
    pub(crate) ids: Vec<PolicyId>,
}

impl Set {
    pub(crate) fn new(redis: &Redis, policies: &[Policy]) -> Self {
        let ids = redis.register(policies).unwrap();
        Self {
            redis: redis.clone(),
            ids,
        }
    }

    /// Takes so much from each policy's share of one key.
    pub(crate) async fn acquire(
        &self,
        key: &str,
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        let keys = vec![key; self.ids.len()];
        self.acquire_from(&keys, cost).await
    }

    /// Takes so much from the shares of these keys, one per policy.
    pub(crate) async fn acquire_from(
        &self,
        keys: &[&str],
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        answered(self.ask(keys, cost)).await
    }

    /// The same, without waiting.
    pub(crate) fn ask(&self, keys: &[&str], cost: u64) -> Answer {
        let charges: Vec<Charge<'_>> = self
            .ids
            .iter()
            .zip(keys)
            .map(|(&id, key)| Charge::new(id, key.as_bytes(), cost))
            .collect();
        self.redis
            .acquire(&charges, &mut Decisions::rejected(charges.len()))
    }

    /// Corrects charges of so much to one key.
    pub(crate) async fn settle(
        &self,
        key: &str,
        cost: u64,
        delta: i64,
    ) -> Result<(), BackendError> {
        let charge = |&id| Charge::new(id, key.as_bytes(), cost);
        let charges: Vec<Charge<'_>> = self.ids.iter().map(charge).collect();
        answered(self.redis.settle(&charges, delta))
            .await
            .map(|_| ())
    }

    /// One decision of the first policy.
    pub(crate) async fn one(&self, key: &str) -> Result<Decision, BackendError> {
        Ok(self.acquire(key, 1).await?.decisions[0])
    }
}

/// Repeats a question until it is answered as it should, for at most 20 s.
pub(crate) async fn until<T, F: Future<Output = Option<T>>>(
    what: &str,
    mut ask: impl FnMut() -> F,
) -> T {
    let end = tokio::time::Instant::now() + LONG;
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < end,
            "waited too long for {what}"
        );
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// How often a server has been called to run a script.
pub(crate) fn calls(server: &Server) -> u64 {
    let stats = server.call(&["INFO", "commandstats"]).text();
    let lines = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    let calls = lines.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok());
    calls.sum()
}
