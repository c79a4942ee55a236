//! Calls that are dropped between their turn and the inner call.

use tower_dist_ratelimit::{
    BuildError, Decision, Decisions,
    backend::{Answer, BackendError, BoxFuture, Charge, JointDecision, PolicyId},
};

use super::*;

/// Corrects asynchronously, like a remote backend: a future that is dropped before has sent nothing.
struct Wired(Arc<Memory>);

impl Backend for Wired {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.0.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        self.0.acquire(charges, out)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let memory = Arc::clone(&self.0);
        let [
            Charge {
                policy, key, cost, ..
            },
        ] = *charges
        else {
            panic!("one is told at a time");
        };
        let key = key.to_owned();
        Answer::Later(Box::pin(async move {
            sleep(Duration::from_millis(1)).await;
            memory.settle(&[Charge::new(policy, &key, cost)], delta);
            let decisions = Decisions::rejected(0);
            Ok(JointDecision {
                allowed: true,
                decisions,
            })
        }))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        self.0.reset(policy, key)
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_dropped_before_the_inner_call_is_refunded_on_slow_backends_too() {
    let log = Log::default();
    let layer = layer(Wired(Arc::default()), Quota::per_hour(3));
    // This inner service is never ready.
    let full = ConcurrencyLimitLayer::new(0).layer(inner(&log));
    let mut full = layer.layer(full);
    for number in 0..3 {
        let call = full.call(Call(number, 0, 1));
        assert!(timeout(Duration::ZERO, call).await.is_err());
    }
    sleep(Duration::from_millis(2)).await;
    let mut service = layer.layer(inner(&log));
    for number in 3..6 {
        let called = spawn(&mut service, Call(number, 0, 1)).await.unwrap();
        assert_eq!(called, Ok(number));
    }
}
