//! Claims of `docs/moving-here.md` about the peers' behaviour, compared with the same setting of these crates.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::future::{Ready, ready};
use std::hash::Hash;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use governor::middleware::NoOpMiddleware;
use http::{Method, Request, Response};
use http_body_util::Full;
use tokio::time::{Instant, advance};
use tower::retry::budget::{Budget as _, TpsBudget};
use tower::{BoxError, Layer, Service, ServiceExt as _};
use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
use tower_governor::governor::{GovernorConfig, GovernorConfigBuilder, SharedRateLimiter};
use tower_governor::key_extractor::GlobalKeyExtractor;
use tower_jitter_retry::{Backoff, Budget, Jitter, RetryLayer};
use tower_resilience_retry::RetryConfigBuilder;

/// The interval between two requests and the burst, as the first rejection states them. The peer's clock cannot be paused.
fn rejection<K>(limiter: &SharedRateLimiter<K, NoOpMiddleware>, key: &K) -> (Duration, u32)
where
    K: Clone + Eq + Hash,
{
    let rejected = (0..1_000).find_map(|_| limiter.check_key(key).err());
    let quota = rejected.expect("a rejection").quota();
    (quota.replenish_interval(), quota.burst_size().get())
}

/// The wait of the first rejected request, and the number of requests before it.
async fn ours(quota: Quota) -> (Duration, u32) {
    let limiter = Limiter::new(Memory::default(), Policy::new("p", quota)).unwrap();
    let mut allowed = 0;
    loop {
        let decision = limiter.check("ada").await.unwrap();
        if !decision.allowed {
            return (decision.retry_after.unwrap(), allowed);
        }
        allowed += 1;
    }
}

#[tokio::test(start_paused = true)]
async fn per_second_of_tower_governor_is_seconds_per_request_and_the_rows_here_are_equal() {
    let mut builder = GovernorConfigBuilder::default().key_extractor(GlobalKeyExtractor);
    let two = builder.per_second(2).burst_size(1).finish().unwrap();
    let seconds = Duration::from_secs(2);
    assert_eq!(rejection(two.limiter(), &()), (seconds, 1));
    assert_eq!(ours(Quota::new(1, seconds)).await, (seconds, 1));

    let address = [127, 0, 0, 1].into();
    let half = Duration::from_millis(500);
    let default = GovernorConfig::default();
    assert_eq!(rejection(default.limiter(), &address), (half, 8));
    assert_eq!(ours(Quota::per_second(2).burst(8)).await, (half, 8));

    let four = Duration::from_secs(4);
    let secure = GovernorConfig::secure();
    assert_eq!(rejection(secure.limiter(), &address), (four, 2));
    assert_eq!(ours(Quota::per_minute(15).burst(2)).await, (four, 2));
}

/// How many retries a budget allows at the start, after a hundred successes, and 11 s later. tower counts ten seconds in
/// windows of one second, so the retries of the first window count until then.
async fn retries(withdraw: impl Fn() -> bool, deposit: impl Fn()) -> [usize; 3] {
    let left = || std::iter::repeat_with(&withdraw).take_while(|paid| *paid);
    let start = left().count();
    (0..100).for_each(|_| deposit());
    let earned = left().count();
    advance(Duration::from_secs(11)).await;
    [start, earned, left().count()]
}

#[tokio::test(start_paused = true)]
async fn the_default_budget_of_tower_allows_the_same_retries_as_its_row_here_and_our_default() {
    let tower = TpsBudget::default();
    let expected = [100, 20, 100];
    let seen = retries(|| tower.withdraw(), || tower.deposit()).await;
    assert_eq!(seen, expected);
    for budget in [
        Budget::ratio(0.2).per_second(10).burst(100),
        Budget::default(),
    ] {
        let withdraw = || budget.withdraw().map(|permit| permit.spend()).is_some();
        let seen = retries(withdraw, || budget.deposit()).await;
        assert_eq!(seen, expected, "{budget:?}");
    }
}

/// A service that always fails, and counts its requests.
#[derive(Clone, Debug, Default)]
struct Failing(Arc<AtomicU32>);

impl<B> Service<Request<B>> for Failing {
    type Response = Response<Full<Bytes>>;
    type Error = BoxError;
    type Future = Ready<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<B>) -> Self::Future {
        self.0.fetch_add(1, Relaxed);
        ready(Err("the connection was reset".into()))
    }
}

/// The number of attempts of a request that always fails, and their time.
async fn attempts<L>(layer: &L, method: Method) -> (u32, Duration)
where
    L: Layer<Failing>,
    L::Service: Service<Request<Full<Bytes>>>,
{
    let (failing, start) = (Failing::default(), Instant::now());
    let request = Request::builder().method(method).body(Full::default());
    let service = layer.layer(failing.clone());
    let outcome = service.oneshot(request.unwrap()).await;
    assert!(outcome.is_err(), "the request succeeded");
    (failing.0.load(Relaxed), start.elapsed())
}

#[tokio::test(start_paused = true)]
async fn tower_resilience_resends_a_post_without_jitter_and_our_http_layer_does_not() {
    let base = Duration::from_millis(100);
    let theirs = RetryConfigBuilder::new().exponential_backoff(base).build();
    let backoff = Backoff::exponential(base, Duration::from_secs(20)).jitter(Jitter::None);
    let ours = RetryLayer::builder()
        .http()
        .max_attempts(3)
        .backoff(backoff);
    let ours = ours.build().unwrap();
    let three = (3, 3 * base);
    assert_eq!(attempts(&theirs, Method::GET).await, three);
    assert_eq!(attempts(&ours, Method::GET).await, three);
    assert_eq!(attempts(&theirs, Method::POST).await, three);
    assert_eq!(attempts(&ours, Method::POST).await, (1, Duration::ZERO));
}
