use std::{sync::Arc, time::Duration};

use tests::servers::{Proxy, Redis as Server};
use tower_dist_ratelimit::{
    Decision, Decisions, FailureMode, Limiter, Policy, Quota,
    backend::{Answer, Backend, BackendError, Charge, JointDecision, PolicyId},
};
use tower_dist_ratelimit_redis::Redis;

/// Longer than any wait of a test on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) async fn connect(url: &str) -> Redis {
    Redis::connect(url).await.unwrap()
}

/// A limiter that returns the backend's decision or its error, without a local fallback. Its timeout is long for busy
/// machines; pauses after failures grow with the timeout.
pub(crate) fn limiter(redis: &Redis, policy: Policy) -> Limiter {
    let builder = Limiter::builder(redis.clone(), policy);
    let builder = builder.failure_mode(FailureMode::Closed);
    builder
        .backend_timeout(Duration::from_secs(1))
        .build()
        .unwrap()
}

/// Waits for an answer.
pub(crate) async fn answered(answer: Answer) -> Result<JointDecision, BackendError> {
    match answer {
        Answer::Later(later) => later.await,
        Answer::Failed(error) => Err(error),
        other => panic!("{other:?} from a server"),
    }
}

/// Policies that are decided in one decision.
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

    /// Charges the key to each policy.
    pub(crate) async fn acquire(
        &self,
        key: &str,
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        let keys = vec![key; self.ids.len()];
        self.acquire_from(&keys, cost).await
    }

    /// Charges each policy, with one key for each.
    pub(crate) async fn acquire_from(
        &self,
        keys: &[&str],
        cost: u64,
    ) -> Result<JointDecision, BackendError> {
        answered(self.ask(keys, cost)).await
    }

    /// Sends the charges, without waiting for the answer.
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

    /// Corrects earlier charges of `cost` to one key.
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

    /// Charges the first policy one token, and returns its decision.
    pub(crate) async fn one(&self, key: &str) -> Result<Decision, BackendError> {
        Ok(self.acquire(key, 1).await?.decisions[0])
    }
}

/// Repeats a check until it returns a value, for at most 20 s.
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

/// A policy of many tokens.
pub(crate) fn policy() -> [Policy; 1] {
    [Policy::new("p", Quota::per_hour(1_000))]
}

/// A decision fails, and fails fast.
pub(crate) async fn fails_fast(set: &Set) {
    until("the connection to be given up", || async {
        let charge = [Charge::new(set.ids[0], b"k", 1)];
        let answer = set.redis.acquire(&charge, &mut Decisions::rejected(1));
        matches!(answer, Answer::Failed(_)).then_some(())
    })
    .await;
}

/// A server, a proxy in front of it, and a policy that has been decided through the proxy.
pub(crate) async fn behind_a_proxy() -> (Server, Proxy, Arc<Set>) {
    let server = Server::start();
    let proxy = Proxy::start(server.port()).await;
    let redis = connect(&format!("redis://127.0.0.1:{}", proxy.port())).await;
    let set = Set::new(&redis, &policy());
    set.one("k").await.unwrap();
    (server, proxy, Arc::new(set))
}

/// The number of script calls that a server has executed.
pub(crate) fn calls(server: &Server) -> u64 {
    let stats = server.call(&["INFO", "commandstats"]).text();
    let lines = stats
        .lines()
        .filter(|line| line.starts_with("cmdstat_eval"));
    let calls = lines.filter_map(|line| line.split(['=', ',']).nth(1)?.parse::<u64>().ok());
    calls.sum()
}
