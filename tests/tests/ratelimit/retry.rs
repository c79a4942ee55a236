//! A client that retries against a rate limit.

use std::convert::Infallible;
use std::io;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use axum::Router;
use axum::response::Response as Answer;
use axum::routing::get;
use bytes::Bytes;
use http_body_util::Full;
use hyper::{Method, Request, Response, StatusCode};
use tests::Events;
use tokio::time::Instant;
use tower::util::MapResponseLayer;
use tower::{BoxError, Layer, Service, ServiceExt, service_fn};
use tower_dist_ratelimit::backend::{Backend, Memory};
use tower_dist_ratelimit::{
    CallLimitLayer, Event, FailureMode, LimitError, Observer, Policy, Quota, RateLimitLayer,
    RequestPolicy, ThrottleLayer,
};
use tower_jitter_retry::{Deadline, DelaySource, RetryLayer, RetryOverride, StopReason, Verdict};

use crate::greeter::greet;
use crate::grpc::{Broken, greeter};
use crate::{client, layer, serve};

#[tokio::test(start_paused = true)]
async fn a_retry_waits_for_the_retry_after() {
    let inner = service_fn(async |_: Request<Full<Bytes>>| {
        Ok::<_, Infallible>(Response::new(Full::<Bytes>::default()))
    });
    let quota = Quota::new(1, Duration::from_secs(7));
    let limited = layer(Policy::new("all", quota)).layer(inner);
    let retrying = RetryLayer::http().layer(limited.clone());
    let get = || Request::new(Full::default());
    limited.oneshot(get()).await.unwrap();
    let started = Instant::now();
    let response = retrying.oneshot(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    // 7 s and at most a tenth of jitter.
    let waited = started.elapsed();
    assert!((7_000..=7_700).contains(&waited.as_millis()), "{waited:?}");
}

/// Counts rejections.
#[derive(Clone, Default)]
struct Rejected(Arc<AtomicUsize>);

impl Observer for Rejected {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        if let Event::Rejected(_) = event {
            self.0.fetch_add(1, SeqCst);
        }
    }
}

/// Sends two GET requests to a server that admits one a second and strips the field `hidden`. Returns the last status
/// and the delays of the retries.
async fn twice(backend: impl Backend, hidden: &'static str) -> (StatusCode, Vec<Duration>) {
    let rejected = Rejected::default();
    let limit = RateLimitLayer::builder(backend)
        .limit(Policy::new("all", Quota::per_second(1)))
        .failure_mode(FailureMode::Local { instances: 1 })
        .observer(rejected.clone());
    let hide = MapResponseLayer::new(move |mut response: Answer| {
        response.headers_mut().remove(hidden);
        response
    });
    let router: Router = Router::new().route("/", get(async || "hello"));
    let url = serve(router.layer(limit.build().unwrap()).layer(hide)).await;
    let events = Events::default();
    let retry = RetryLayer::builder().http().observer(events.clone());
    let service = retry.build().unwrap().layer(client());
    let request = || client().get(&url).build().unwrap();
    let first = service.clone().oneshot(request()).await.unwrap();
    assert_eq!(first.status(), StatusCode::OK);
    let started = Instant::now();
    let second = service.oneshot(request()).await.unwrap();
    let delays = events.delays().into_iter();
    let delays: Vec<_> = delays
        .map(|(delay, source)| {
            assert_eq!(source, DelaySource::Server);
            delay
        })
        .collect();
    assert!(started.elapsed() >= delays.iter().sum());
    assert_eq!(rejected.0.load(SeqCst), delays.len(), "none was in vain");
    (second.status(), delays)
}

/// The server's hint of one second, and at most a tenth of jitter.
const A_SECOND: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_millis(1100);

#[tokio::test]
async fn a_retry_over_sockets_waits_for_the_retry_after_once() {
    let (status, delays) = twice(Memory::default(), "x-nothing").await;
    assert_eq!((status, delays.len()), (StatusCode::OK, 1));
    assert!(A_SECOND.contains(&delays[0]), "{delays:?}");
}

#[tokio::test]
async fn the_fields_of_the_limit_alone_say_as_much() {
    let (status, delays) = twice(Memory::default(), "retry-after").await;
    assert_eq!((status, delays.len()), (StatusCode::OK, 1));
    assert!(A_SECOND.contains(&delays[0]), "{delays:?}");
}

#[tokio::test]
async fn a_share_that_is_used_up_is_waited_for_just_so() {
    let (status, delays) = twice(Broken, "ratelimit").await;
    assert_eq!((status, delays.len()), (StatusCode::OK, 1));
    assert!(A_SECOND.contains(&delays[0]), "{delays:?}");
}

#[tokio::test]
async fn pushback_is_waited_for_to_the_millisecond_and_no_second_time() {
    let window = Duration::from_millis(150);
    for backend in [true, false] {
        let policy = Policy::new("peer", Quota::new(1, window));
        let (channel, requests) = match backend {
            true => greeter(Memory::default(), policy).await,
            false => greeter(Broken, policy).await,
        };
        greet(channel.clone(), "ada").await.unwrap();
        let events = Events::default();
        let retry = RetryLayer::builder().grpc().observer(events.clone());
        let service = retry.build().unwrap().layer(channel);
        let started = Instant::now();
        assert_eq!(greet(service, "ada").await.unwrap(), "hello, ada");
        let [(delay, DelaySource::Server)] = events.delays()[..] else {
            panic!("{:?}", events.delays())
        };
        assert!(delay <= window && delay <= started.elapsed(), "{delay:?}");
        assert_eq!(delay.subsec_nanos() % 1_000_000, 0, "whole milliseconds");
        assert_eq!((events.attempts(), requests.load(SeqCst)), (2, 2));
    }
}

#[tokio::test]
async fn a_call_that_can_never_pass_is_not_retried() {
    let policy = Policy::new("size", Quota::per_second(5)).cost_fn(|_| 6);
    let (channel, requests) = greeter(Memory::default(), policy).await;
    let events = Events::default();
    let retry = RetryLayer::builder().grpc().observer(events.clone());
    let service = retry.build().unwrap().layer(channel);
    let status = greet(service, "ada").await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::ResourceExhausted);
    assert_eq!((events.attempts(), requests.load(SeqCst)), (1, 0));
    assert!(events.delays().is_empty());
    assert_eq!(events.stop(), StopReason::RetryForbidden);
}

/// One request in each `window`. A request that would wait for more than 100 ms is rejected.
fn throttle<Req: 'static>(window: Duration) -> ThrottleLayer<Req> {
    throttle_with(Policy::new("all", Quota::new(1, window)))
}

fn throttle_with<Req: 'static>(policy: impl Into<RequestPolicy<Req>>) -> ThrottleLayer<Req> {
    let builder = CallLimitLayer::builder(Memory::default()).limit(policy);
    let builder = builder.waiting().max_wait(Duration::from_millis(100));
    builder.build().unwrap()
}

/// A request that is safe to resend only with proof that it was not sent.
fn post() -> Request<Full<Bytes>> {
    Request::post("/orders").body(Full::default()).unwrap()
}

async fn answer<E>(_: Request<Full<Bytes>>) -> Result<Response<Full<Bytes>>, E> {
    Ok(Response::new(Full::default()))
}

/// Calls a retry layer above a throttle twice. The throttle rejects the first attempt of the second call.
async fn waits_for_its_turn<S, Req>(events: &Events, mut service: S, request: impl Fn() -> Req)
where
    S: Service<Req, Error: std::fmt::Debug>,
{
    let started = Instant::now();
    service
        .ready()
        .await
        .unwrap()
        .call(request())
        .await
        .map(drop)
        .unwrap();
    assert_eq!(started.elapsed(), Duration::ZERO);
    service
        .ready()
        .await
        .unwrap()
        .call(request())
        .await
        .map(drop)
        .unwrap();
    let [(delay, DelaySource::Server)] = events.delays()[..] else {
        panic!("{:?}", events.delays())
    };
    assert!(A_SECOND.contains(&delay), "{delay:?}");
    assert_eq!(events.attempts(), 1 + 2);
    assert!(A_SECOND.contains(&started.elapsed()));
}

#[tokio::test(start_paused = true)]
async fn a_retry_above_a_throttle_waits_for_the_rejections_retry_after() {
    let second = Duration::from_secs(1);
    let http = |events: &Events| {
        let retry = RetryLayer::builder().http().observer(events.clone());
        retry.build().unwrap()
    };

    let events = Events::default();
    let limited = throttle(second).layer(service_fn(answer::<Infallible>));
    waits_for_its_turn(&events, http(&events).layer(limited), post).await;

    let events = Events::default();
    let limited = throttle(second).layer(service_fn(answer::<io::Error>));
    let boxed = limited.map_err(BoxError::from);
    waits_for_its_turn(&events, http(&events).layer(boxed), post).await;

    let events = Events::default();
    let limited = throttle(second).layer(service_fn(answer::<BoxError>));
    let boxed = limited.map_err(LimitError::into_boxed);
    waits_for_its_turn(&events, http(&events).layer(boxed), post).await;

    let events = Events::default();
    let retry = RetryLayer::builder().grpc().observer(events.clone());
    let limited = throttle(second).layer(service_fn(answer::<BoxError>));
    waits_for_its_turn(&events, retry.build().unwrap().layer(limited), post).await;

    // Another service, with its own error type.
    #[derive(Debug)]
    struct Failure;
    let events = Events::default();
    let retry = RetryLayer::builder().observer(events.clone());
    let limited = throttle(second).layer(service_fn(async |_: u32| Ok::<_, Failure>(())));
    waits_for_its_turn(&events, retry.build().unwrap().layer(limited), || 7).await;

    // A user's rule that retries every error.
    let events = Events::default();
    let retry = RetryLayer::builder()
        .retry_if(|outcome: &Result<(), LimitError<Failure>>| outcome.is_err())
        .observer(events.clone());
    let limited = throttle(second).layer(service_fn(async |_: u32| Ok::<_, Failure>(())));
    waits_for_its_turn(&events, retry.build().unwrap().layer(limited), || 7).await;

    let events = Events::default();
    let retry = RetryLayer::builder()
        .http()
        .classify(|outcome| match outcome.error() {
            Some(_) => Verdict::transient(),
            None => outcome.verdict(),
        })
        .observer(events.clone());
    let limited = throttle(second).layer(service_fn(answer::<BoxError>));
    waits_for_its_turn(&events, retry.build().unwrap().layer(limited), post).await;
}

/// Sends a request that the throttle rejects, and returns the retry layer's stop reason.
async fn rejected(
    throttle: ThrottleLayer<Request<Full<Bytes>>>,
    request: Request<Full<Bytes>>,
) -> StopReason {
    let events = Events::default();
    let retry = RetryLayer::builder().http().observer(events.clone());
    let limited = throttle.layer(service_fn(answer::<Infallible>));
    let _ = limited.clone().oneshot(post()).await;
    let started = Instant::now();
    let outcome = retry.build().unwrap().layer(limited).oneshot(request).await;
    assert!(matches!(outcome, Err(LimitError::RateLimited(_))));
    assert_eq!(started.elapsed(), Duration::ZERO);
    assert_eq!((events.attempts(), events.delays()), (1, Vec::new()));
    events.stop()
}

#[tokio::test(start_paused = true)]
async fn a_rejection_that_asks_for_too_long_or_forbids_it_is_the_callers() {
    let get = || Request::new(Full::default());
    assert_eq!(*get().method(), Method::GET);
    let seconds = Duration::from_secs;
    // The maximum hint is 60 s.
    let stop = rejected(throttle(seconds(61)), get()).await;
    assert_eq!(stop, StopReason::RetryAfterTooLong);
    let mut urgent = get();
    let deadline = Deadline::after(seconds(1) / 2);
    let own = RetryOverride::new().deadline(deadline);
    urgent.extensions_mut().insert(own);
    let stop = rejected(throttle(seconds(1)), urgent).await;
    assert_eq!(stop, StopReason::DeadlineExceeded);
    // The cost exceeds the burst, so this request can never pass.
    let policy = Policy::new("size", Quota::per_second(5)).by_request(|_: &Request<_>| 0_u64);
    let throttle = throttle_with(policy.cost_fn(|_| 6));
    assert_eq!(rejected(throttle, get()).await, StopReason::Fatal);
}

/// A layer in between does not hide the proof.
#[tokio::test(start_paused = true)]
async fn the_inner_errors_of_a_throttle_are_recognised_too() {
    let events = Events::default();
    let retry = RetryLayer::builder().http().observer(events.clone());
    let rejected = async |_: Request<Full<Bytes>>| {
        let error = io::Error::from(io::ErrorKind::ConnectionRefused);
        Err::<Response<Full<Bytes>>, _>(error)
    };
    let limited =
        throttle_with(Policy::new("all", Quota::per_second(10))).layer(service_fn(rejected));
    let service = retry.build().unwrap().layer(limited);
    service.oneshot(post()).await.unwrap_err();
    assert_eq!(events.attempts(), 3);
}
