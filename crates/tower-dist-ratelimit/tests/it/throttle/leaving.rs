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

/// A call outside a runtime is decided before its first poll. The clock is real there, so the queue takes minutes.
#[test]
fn a_call_dropped_outside_a_runtime_before_its_first_poll_is_refunded_and_one_event() {
    let (told, hour) = (Told::default(), Duration::from_secs(3600));
    let layer = CallLimitLayer::<Call>::builder(Memory::default())
        .limit(Policy::new("queue", Quota::per_day(200)).leaky_queue(hour))
        .limit(Policy::new("bucket", Quota::per_day(2)))
        .limit(Policy::new("window", Quota::per_day(2)).fixed_window())
        .observer(told.clone())
        .waiting()
        .max_wait(hour);
    let mut service = layer.build().unwrap().layer(inner(&Log::default()));
    let first = service.call(Call(1, 0, 1));
    assert_eq!(told.all().len(), 1);
    for number in 2..5 {
        drop(service.call(Call(number, 0, 1)));
        assert_eq!(told.all(), ["cancelled"], "{number}");
    }
    let last = service.call(Call(5, 0, 1));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        assert_eq!(first.await.unwrap(), 1);
        assert_eq!(last.await.unwrap(), 5);
    });
    // The dropped calls keep their places in the queue, and return their other tokens.
    let left = r#"allowed [("queue", 4), ("bucket", 0), ("window", 0)]"#;
    assert_eq!(told.all()[0], left);
}
