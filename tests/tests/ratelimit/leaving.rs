//! Callers that leave between their turn and the service, over backends that need a refund.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tests::servers::{Memcached, Redis};
use tokio::sync::Notify;
use tower::{Layer, Service};
use tower_dist_ratelimit::backend::Backend;
use tower_dist_ratelimit::{CallLimitLayer, Limiter, Policy, Quota};

/// Longer than any answer of a backend on a busy machine.
const LONG: Duration = Duration::from_secs(20);

/// Never becomes ready, and signals when it is polled for readiness.
#[derive(Clone)]
struct Full(Arc<Notify>);

impl Service<&'static str> for Full {
    type Response = ();
    type Error = Infallible;
    type Future = Ready<Result<(), Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.notify_one();
        Poll::Pending
    }

    fn call(&mut self, _: &'static str) -> Self::Future {
        ready(Ok(()))
    }
}

#[tokio::test]
async fn a_call_that_is_given_up_before_it_is_made_has_its_tokens_back_in_any_store() {
    let (redis, memcached) = (Redis::start(), Memcached::start());
    let redis = tower_dist_ratelimit_redis::Redis::connect(&redis.url())
        .await
        .unwrap();
    let memcached = tower_dist_ratelimit_memcached::Memcached::connect(&memcached.url())
        .await
        .unwrap();
    let stores: [Arc<dyn Backend>; 2] = [Arc::new(redis), Arc::new(memcached)];
    for store in stores {
        let policy = || Policy::new("calls", Quota::per_hour(3));
        let limiter = Limiter::builder(Arc::clone(&store), policy()).backend_timeout(LONG);
        let limiter = limiter.build().unwrap();
        let left = async || limiter.peek("k").await.unwrap().remaining;
        let layer = CallLimitLayer::builder(store)
            .limit(policy().by_request(|key: &&'static str| *key))
            .backend_timeout(LONG)
            .waiting()
            .build()
            .unwrap();
        let turn = Arc::new(Notify::new());
        let call = tokio::spawn(layer.layer(Full(Arc::clone(&turn))).call("k"));
        tests::soon(turn.notified()).await;
        assert_eq!(left().await, 2);
        call.abort();
        tests::soon(async {
            while left().await < 3 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        })
        .await;
    }
}
