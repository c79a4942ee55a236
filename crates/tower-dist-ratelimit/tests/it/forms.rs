//! Shadow mode and observers for calls of any type and for gRPC.

use std::{convert::Infallible, future::Ready, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{Request, Response};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn, util::ServiceFn};
use tower_dist_ratelimit::{
    CallLimitLayer, CallLimitLayerBuilder, FailureMode, LimitError, Limiter, Policy,
    RateLimitHandle, RateLimitLayer, ThrottleLayer,
    backend::{Backend, Memory},
};

use crate::support::{Broken, Probe, Remote, Told, field, from, get, send, slow};

/// One token per second and key.
fn policy() -> Policy {
    Policy::new("p", slow(1))
}

type Work = ServiceFn<fn(u64) -> Ready<Result<u64, Infallible>>>;

fn work() -> Work {
    service_fn(|number| std::future::ready(Ok(number)))
}

async fn call<S>(service: &mut S, number: u64) -> Result<u64, LimitError<Infallible>>
where
    S: Service<u64, Response = u64, Error = LimitError<Infallible>>,
{
    service.ready().await?.call(number).await
}

fn calls(backend: impl Backend) -> CallLimitLayerBuilder<u64> {
    CallLimitLayer::builder(backend).limit(policy().by_request(|number: &u64| *number))
}

/// A backend that decides immediately, and a slow one.
fn stores() -> [Arc<dyn Backend>; 2] {
    [
        Arc::new(Memory::default()),
        Arc::new(Remote::after(Duration::from_millis(1))),
    ]
}

#[tokio::test(start_paused = true)]
async fn a_shadow_allows_calls_of_any_type_and_reports_would_be_rejections() {
    for store in stores() {
        let told = Told::default();
        let layer = calls(store).shadow().observer(told.clone());
        let mut service = layer.build().unwrap().layer(work());
        for _ in 0..3 {
            assert_eq!(call(&mut service, 7).await.unwrap(), 7);
        }
        let rejected = r#"shadowed Quota ["p"] of 1"#;
        assert_eq!(told.all(), [r#"allowed [("p", 0)]"#, rejected, rejected]);
    }
    let told = Told::default();
    let layer = calls(Broken).shadow().failure_mode(FailureMode::Closed);
    let layer = layer.observer(told.clone()).build().unwrap();
    assert_eq!(call(&mut layer.layer(work()), 7).await.unwrap(), 7);
    assert_eq!(
        told.all(),
        ["failed late=false", "shadowed Backend [] of 1"]
    );
}

#[tokio::test(start_paused = true)]
async fn a_shadow_of_a_throttle_delays_no_call_and_refunds_nothing() {
    for store in stores() {
        let told = Told::default();
        let layer = calls(store).shadow().observer(told.clone()).waiting();
        let layer: ThrottleLayer<u64> = layer.build().unwrap();
        let mut service = layer.layer(work());
        let started = Instant::now();
        for _ in 0..3 {
            assert_eq!(call(&mut service, 7).await.unwrap(), 7);
        }
        assert!(started.elapsed() <= Duration::from_millis(3));
        let rejected = r#"shadowed Quota ["p"] of 1"#;
        assert_eq!(told.all(), [r#"allowed [("p", 0)]"#, rejected, rejected]);
        // No tokens were charged, so a call that is dropped before its turn refunds none.
        let (pending, mut handle) = tower_test::mock::pair::<u64, u64>();
        handle.allow(0);
        let mut unready = Box::pin(layer.layer(pending).call(7));
        let soon = tokio::time::timeout(Duration::from_millis(5), &mut unready);
        assert!(soon.await.is_err());
        drop(unready);
        sleep(Duration::from_millis(5)).await;
        told.all();
        call(&mut service, 7).await.unwrap();
        assert_eq!(told.all(), [rejected], "still used up");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shadow_of_a_leaky_queue_delays_no_call() {
    let queue = || Policy::new("q", slow(1)).leaky_queue(Duration::from_secs(9));
    let started = Instant::now();
    let layer = CallLimitLayer::builder(Memory::default()).limit(queue());
    let mut service = layer.shadow().build().unwrap().layer(work());
    for _ in 0..20 {
        assert_eq!(call(&mut service, 7).await.unwrap(), 7);
    }
    let layer = CallLimitLayer::builder(Memory::default()).limit(queue());
    let mut service = layer.shadow().waiting().build().unwrap().layer(work());
    for _ in 0..20 {
        assert_eq!(call(&mut service, 7).await.unwrap(), 7);
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_of_a_limiter_with_a_leaky_queue_tells_no_caller_to_wait() {
    let queue = || Policy::new("q", slow(1)).leaky_queue(Duration::from_secs(9));
    for store in stores() {
        let limiter = Limiter::builder(store, queue()).shadow().build().unwrap();
        for number in 0..20 {
            let decision = limiter.check("a").await.unwrap();
            assert_eq!(
                (decision.allowed, decision.delay),
                (true, Duration::ZERO),
                "{number}"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_each_check_of_a_limiter_and_no_peek() {
    for store in stores() {
        let told = Told::default();
        let limiter = Limiter::builder(store, policy()).observer(told.clone());
        let limiter = limiter.build().unwrap();
        assert!(limiter.check("a").await.unwrap().allowed);
        let rejected = limiter.check("a").await.unwrap();
        assert_eq!(
            (rejected.allowed, rejected.remaining, rejected.limit),
            (false, 0, 1)
        );
        assert!(rejected.retry_after.is_some_and(|wait| !wait.is_zero()));
        limiter.peek("a").await.unwrap();
        limiter.refund("a", 1).await.unwrap();
        assert_eq!(
            told.all(),
            [r#"allowed [("p", 0)]"#, r#"rejected Quota ["p"] of 1"#]
        );
    }
    let told = Told::default();
    let limiter = Limiter::builder(Remote::after(Duration::from_millis(1)), policy());
    let limiter = limiter.observer(told.clone()).build().unwrap();
    for _ in 0..2 {
        // A `select!` drops its losing branch in the same way.
        let check = limiter.check("a");
        assert!(tokio::time::timeout(Duration::ZERO, check).await.is_err());
    }
    assert_eq!(told.all(), ["cancelled", "cancelled"]);
    drop(limiter.check("a"));
    assert!(told.all().is_empty(), "it has not begun");
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_backend_failures_of_a_limiter() {
    for (action, follows) in [
        (FailureMode::Open, r#"allowed [("p", 0)]"#),
        (FailureMode::Closed, "rejected Backend [] of 1"),
    ] {
        let told = Told::default();
        let limiter = Limiter::builder(Broken, policy()).failure_mode(action);
        let limiter = limiter.observer(told.clone()).build().unwrap();
        assert_eq!(
            limiter.check("a").await.is_ok(),
            action == FailureMode::Open
        );
        assert_eq!(told.all(), ["failed late=false", follows]);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_the_wait_of_a_limiter_s_check() {
    let told = Told::default();
    let queue = policy().leaky_queue(Duration::from_secs(9));
    let limiter = Limiter::builder(Memory::default(), queue).observer(told.clone());
    let limiter = limiter.build().unwrap();
    limiter.check("a").await.unwrap();
    told.all();
    assert_eq!(
        limiter.check("a").await.unwrap().delay,
        Duration::from_secs(1)
    );
    assert_eq!(told.all()[1..], ["waited 1000"]);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_of_a_limiter_allows_every_check_and_grants_the_available_tokens() {
    for store in stores() {
        let told = Told::default();
        let limiter = Limiter::builder(store, policy()).observer(told.clone());
        let limiter = limiter.shadow().build().unwrap();
        assert_eq!(limiter.check("a").await.unwrap().granted, 1);
        let shadowed = limiter.check("a").await.unwrap();
        assert_eq!((shadowed.allowed, shadowed.granted), (true, 0));
        assert!(shadowed.retry_after.is_some_and(|wait| !wait.is_zero()));
        assert_eq!(
            told.all(),
            [r#"allowed [("p", 0)]"#, r#"shadowed Quota ["p"] of 1"#]
        );
    }
    let limiter = Limiter::builder(Broken, policy()).failure_mode(FailureMode::Closed);
    let limiter = limiter.shadow().build().unwrap();
    assert!(limiter.check("a").await.unwrap().allowed);
}

#[tokio::test(start_paused = true)]
async fn a_charge_beyond_the_tokens_of_a_limiter_extends_the_wait() {
    for store in stores() {
        let limiter = Limiter::new(store, Policy::new("p", slow(10))).unwrap();
        assert!(limiter.check_n("a", 4).await.unwrap().allowed);
        limiter.charge("a", 8).await.unwrap();
        let rejected = limiter.check("a").await.unwrap();
        let wait = rejected.retry_after.unwrap().as_millis();
        assert!((2_990..=3_000).contains(&wait), "{wait}");
        limiter.refund("a", 12).await.unwrap();
        assert_eq!(limiter.peek("a").await.unwrap().remaining, 10);
        for tokens in [u64::MAX, 0] {
            limiter.charge("b", tokens).await.unwrap();
        }
        assert!(!limiter.check("b").await.unwrap().allowed);
    }
    let limiter = Limiter::new(Broken, policy()).unwrap();
    assert!(limiter.charge("a", 1).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_shadow_in_grpc_allows_all_calls() {
    let told = Told::default();
    let layer = RateLimitLayer::builder(Memory::default()).limit(policy());
    let layer = layer.grpc().shadow().observer(told.clone());
    let mut service = layer.build().unwrap().layer(Probe::default());
    for _ in 0..2 {
        let response = send(&mut service, get()).await;
        assert_eq!(field(&response, "grpc-status"), None);
    }
    let rejected = r#"shadowed Quota ["p"] of 1"#;
    assert_eq!(told.all(), [r#"allowed [("p", 0)]"#, rejected]);
}

#[tokio::test(start_paused = true)]
async fn a_grpc_call_has_a_handle_and_its_failures_can_be_left_uncounted() {
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("p", slow(100)).cost(10))
        .grpc()
        .handle()
        .refund_when(|response| {
            response.is_some_and(|response| response.headers().contains_key("grpc-status"))
        })
        .build()
        .unwrap();
    // A request with a key fails as gRPC does: with a status among the headers.
    let inner = service_fn(async |request: Request<()>| {
        let handle: &RateLimitHandle = request.extensions().get().unwrap();
        let mut response = Response::new(Bytes::new());
        if request.headers().contains_key("key") {
            let status = http::HeaderValue::from_static("5");
            response.headers_mut().insert("grpc-status", status);
        } else {
            handle.settle(3);
        }
        Ok::<_, Infallible>(response)
    });
    let mut service = layer.layer(inner);
    for (request, left) in [(get(), 90), (from("a"), 87), (get(), 87), (get(), 84)] {
        let response = send(&mut service, request).await;
        let state = field(&response, "ratelimit").unwrap();
        assert!(state.starts_with(&format!("\"p\";r={left};")), "{state}");
    }
}
