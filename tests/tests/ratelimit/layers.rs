//! Rate limits between other layers.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep};
use tower::balance::p2c::Balance;
use tower::discover::ServiceList;
use tower::limit::ConcurrencyLimitLayer;
use tower::load::Constant;
use tower::load_shed::{LoadShedLayer, error::Overloaded};
use tower::timeout::{TimeoutLayer, error::Elapsed};
use tower::util::MapErrLayer;
use tower::{BoxError, Layer, Service, ServiceBuilder, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::{Backend, Memory};
use tower_dist_ratelimit::{
    CallLimitLayer, Limiter, Policy, Quota, RateLimitLayer, Reason, ThrottleLayer, key,
};
use tower_hedge_latency::HedgeLayer;
use tower_jitter_retry::RetryLayer;

use crate::{few, layer};

type Answer = Response<Full<Bytes>>;

fn request() -> Request<Full<Bytes>> {
    Request::new(Full::default())
}

/// Sends another request and returns its outcome.
async fn ask<S>(service: &mut S) -> Answer
where
    S: Service<Request<Full<Bytes>>, Response = Answer, Error: std::fmt::Debug>,
{
    let ready = service.ready().await.unwrap();
    ready.call(request()).await.unwrap()
}

/// Answers after this delay, and counts calls.
#[derive(Clone)]
struct Slow {
    takes: Duration,
    calls: Arc<AtomicUsize>,
}

impl Slow {
    fn new(millis: u64) -> Self {
        Self {
            takes: Duration::from_millis(millis),
            calls: Arc::default(),
        }
    }

    fn calls(&self) -> usize {
        self.calls.load(SeqCst)
    }
}

impl Service<Request<Full<Bytes>>> for Slow {
    type Response = Answer;
    type Error = Infallible;
    type Future = futures_util::future::BoxFuture<'static, Result<Answer, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        self.calls.fetch_add(1, SeqCst);
        let takes = self.takes;
        Box::pin(async move {
            sleep(takes).await;
            Ok(Answer::default())
        })
    }
}

/// A request that is shed above a limit costs nothing; a request that is shed below it has been counted.
#[tokio::test(start_paused = true)]
async fn a_request_shed_above_a_limit_is_not_counted_and_one_shed_below_it_is() {
    for (above, left) in [(true, 8), (false, 7)] {
        let store: Arc<dyn Backend> = Arc::new(Memory::default());
        let limit = RateLimitLayer::builder(store).limit(Policy::new("all", few(9)));
        let limit = limit.handle().build().unwrap();
        let busy = ServiceBuilder::new()
            .layer(LoadShedLayer::new())
            .layer(ConcurrencyLimitLayer::new(1));
        let inner = Slow::new(100);
        let service = if above {
            busy.layer(limit.clone())
                .service(inner.clone())
                .boxed_clone()
        } else {
            let boxed = MapErrLayer::new(|error: Infallible| match error {});
            let shed = busy.layer(boxed).service(inner.clone());
            limit.layer(shed).boxed_clone()
        };
        let first = tokio::spawn(service.clone().oneshot(request()));
        sleep(Duration::from_millis(1)).await;
        let shed: Result<Answer, BoxError> = service.clone().oneshot(request()).await;
        assert!(shed.unwrap_err().is::<Overloaded>());
        assert_eq!(first.await.unwrap().unwrap().status(), StatusCode::OK);
        let last = service.oneshot(request()).await.unwrap();
        let told = last.headers()["ratelimit"].to_str().unwrap();
        assert!(
            told.starts_with(&format!("\"all\";r={};", left - 1)),
            "{told}"
        );
        assert_eq!(inner.calls(), 2);
    }
}

/// A call that times out counts; a caller that leaves the queue does not.
#[tokio::test(start_paused = true)]
async fn a_timeout_around_a_limit_ends_waits_and_gives_places_back() {
    let timely = TimeoutLayer::new(Duration::from_millis(150));
    let limited = layer(Policy::new("all", few(1))).layer(Slow::new(1_000));
    let mut service = timely.layer(limited);
    let late = service.ready().await.unwrap().call(request()).await;
    assert!(late.unwrap_err().is::<Elapsed>());
    let counted = ask(&mut service).await;
    assert_eq!(counted.status(), StatusCode::TOO_MANY_REQUESTS);

    let throttle: ThrottleLayer<Request<Full<Bytes>>> = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", Quota::per_second(10).burst(1)))
        .waiting()
        .build()
        .unwrap();
    let inner = Slow::new(0);
    let service = timely.layer(throttle.layer(inner.clone()));
    let started = Instant::now();
    let calls = (0..5).map(|_| tokio::spawn(service.clone().oneshot(request())));
    let calls: Vec<_> = calls.collect();
    let mut passed = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => passed += 1,
            Err(error) => assert!(error.is::<Elapsed>()),
        }
    }
    assert_eq!((passed, inner.calls()), (2, 2), "at 0 and 100 ms");
    assert_eq!(started.elapsed(), Duration::from_millis(150));
    // The third caller left the queue, so its token of 200 ms is free.
    let next = throttle.layer(inner).oneshot(request()).await;
    assert!(next.is_ok());
    assert_eq!(started.elapsed(), Duration::from_millis(200));
}

/// Below a hedge layer each attempt counts; a rejected hedge does not beat the attempt in flight.
#[tokio::test(start_paused = true)]
async fn a_hedge_above_a_limit_spends_a_token_for_each_attempt_and_below_it_one() {
    let hedge = || {
        let builder = HedgeLayer::builder().fixed(Duration::from_millis(10));
        builder.http().build().unwrap()
    };
    for (limit_inside, attempts, left) in [(true, 3, 0), (false, 4, 1)] {
        let inner = Slow::new(100);
        let limit = layer(Policy::new("all", few(3)));
        let service = if limit_inside {
            hedge().layer(limit.layer(inner.clone())).boxed_clone()
        } else {
            limit.layer(hedge().layer(inner.clone())).boxed_clone()
        };
        let first = service.clone().oneshot(request()).await.unwrap();
        assert_eq!((first.status(), inner.calls()), (StatusCode::OK, 2));
        let second = service.oneshot(request()).await.unwrap();
        assert_eq!((second.status(), inner.calls()), (StatusCode::OK, attempts));
        let told = second.headers()["ratelimit"].to_str().unwrap();
        assert!(told.starts_with(&format!("\"all\";r={left};")), "{told}");
    }
}

/// Two layers with policies of one name on one backend: the policies count separately, and both are listed.
#[tokio::test(start_paused = true)]
async fn two_limits_of_one_name_over_one_store_count_apart() {
    let store: Arc<dyn Backend> = Arc::new(Memory::default());
    let limit = |burst| {
        let builder = RateLimitLayer::builder(Arc::clone(&store));
        builder
            .limit(Policy::new("same", few(burst)))
            .build()
            .unwrap()
    };
    let inner = Slow::new(0);
    let mut service = limit(9).layer(limit(2).layer(inner.clone()));
    let mut told = Vec::new();
    for _ in 0..3 {
        let answer = ask(&mut service).await;
        let lines = answer.headers().get_all("ratelimit").iter();
        let lines: Vec<_> = lines
            .map(|line| {
                line.to_str()
                    .unwrap()
                    .split(";t")
                    .next()
                    .unwrap()
                    .to_owned()
            })
            .collect();
        told.push((answer.status().as_u16(), lines.join(", ")));
    }
    let expected = [
        (200, "\"same\";r=1, \"same\";r=8"),
        (200, "\"same\";r=0, \"same\";r=7"),
        (429, "\"same\";r=0, \"same\";r=6"),
    ];
    assert_eq!(
        told,
        expected.map(|(status, lines)| (status, lines.to_owned()))
    );
    assert_eq!(inner.calls(), 2);
    let limiter = Limiter::new(store, Policy::new("same", few(5))).unwrap();
    assert_eq!(limiter.peek("").await.unwrap().remaining, 5);
}

/// All endpoints of a balancer share the layer's state; a layer for each endpoint has its own.
#[tokio::test(start_paused = true)]
async fn endpoints_of_a_balancer_share_a_layer_and_not_a_builder() {
    for (shared, allowed) in [(true, 4), (false, 12)] {
        let one = layer(Policy::new("all", few(4)));
        let endpoints = (0..3).map(|_| {
            let limit = if shared {
                one.clone()
            } else {
                layer(Policy::new("all", few(4)))
            };
            Constant::new(limit.layer(Slow::new(0)), 1)
        });
        let mut balance = Balance::new(ServiceList::new::<Request<Full<Bytes>>>(endpoints));
        let mut passed = 0;
        for _ in 0..200 {
            let answer = ask(&mut balance).await;
            passed += usize::from(answer.status() == StatusCode::OK);
        }
        assert_eq!(passed, allowed);
    }
}

/// A retry waits for the `Retry-After` of the limit below it, and other requests proceed meanwhile.
#[tokio::test(start_paused = true)]
async fn a_throttle_below_a_retry_lets_every_attempt_wait_for_its_turn() {
    let throttle: ThrottleLayer<Request<Full<Bytes>>> = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", Quota::per_second(2).burst(1)))
        .waiting()
        .max_wait(Duration::from_secs(10))
        .build()
        .unwrap();
    let times = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (started, seen) = (Instant::now(), Arc::clone(&times));
    let flaky = service_fn(move |_: Request<Full<Bytes>>| {
        let number = {
            let mut seen = seen.lock().unwrap();
            seen.push(started.elapsed());
            seen.len()
        };
        let mut answer = Answer::default();
        if number < 3 {
            *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        }
        async { Ok::<_, BoxError>(answer) }
    });
    let unboxed =
        MapErrLayer::new(|error: tower_dist_ratelimit::LimitError<BoxError>| error.into_boxed());
    let service = ServiceBuilder::new()
        .layer(RetryLayer::http())
        .layer(unboxed)
        .layer(throttle)
        .service(flaky);
    let answer: Result<Answer, BoxError> = service.oneshot(request()).await;
    assert_eq!(answer.unwrap().status(), StatusCode::OK);
    let times = times.lock().unwrap().clone();
    assert_eq!(times.len(), 3);
    for pair in times.windows(2) {
        assert!(pair[1] - pair[0] >= Duration::from_millis(500), "{times:?}");
    }
}

/// A request that the inner limit rejects has cost the outer limit a token, which a refund returns.
#[tokio::test(start_paused = true)]
async fn a_rejection_by_the_inner_limit_can_be_refunded_by_the_outer() {
    let inner = layer(Policy::new("inner", few(1)));
    let outer = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("outer", few(5)).by(key::method()))
        .refund_when(|answer| {
            answer.is_some_and(|head| head.status() == StatusCode::TOO_MANY_REQUESTS)
        })
        .build()
        .unwrap();
    let mut service = outer.layer(inner.layer(Slow::new(0)));
    for _ in 0..20 {
        let answer = ask(&mut service).await;
        let last = answer
            .headers()
            .get_all("ratelimit")
            .iter()
            .next_back()
            .unwrap();
        assert!(
            last.to_str().unwrap().starts_with("\"outer\""),
            "never the outer's rejection"
        );
    }
}

/// A rejection is recognised through every kind of boxed error.
#[tokio::test(start_paused = true)]
async fn a_rejection_below_boxes_is_still_found() {
    let limit = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", few(1)))
        .build()
        .unwrap();
    let mut service = ServiceBuilder::new()
        .boxed_clone()
        .layer(LoadShedLayer::new())
        .map_err(|error: tower_dist_ratelimit::LimitError<Infallible>| error)
        .layer(limit)
        .service(service_fn(async |job: u64| Ok::<_, Infallible>(job)));
    assert_eq!(service.ready().await.unwrap().call(7).await.unwrap(), 7);
    let error: BoxError = service.ready().await.unwrap().call(8).await.unwrap_err();
    let error = error
        .downcast::<tower_dist_ratelimit::LimitError<Infallible>>()
        .unwrap();
    let tower_dist_ratelimit::LimitError::RateLimited(rejected) = *error else {
        panic!("{error:?}")
    };
    assert_eq!(rejected.reason(), Reason::Quota);
}
