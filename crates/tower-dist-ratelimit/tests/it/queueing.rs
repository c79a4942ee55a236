//! Leaky queues: requests that are allowed after a wait.

mod throttled;

use std::{
    convert::Infallible,
    future::{Ready, ready},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use tokio::time::{Instant, sleep, timeout};
use tower::{Layer, Service, ServiceExt, limit::ConcurrencyLimitLayer, service_fn};
use tower_dist_ratelimit::{
    CallLimitLayer, Event, LimitError, Limiter, Observer, Policy, Quota, RateLimitLayer, Reason,
    backend::{Backend, Memory},
};

use crate::support::{Probe, Remote, get, send};

/// One request per 100 ms, and at most three waiting requests.
fn queue() -> Policy {
    Policy::new("queue", Quota::per_second(10)).leaky_queue(Duration::from_millis(300))
}

fn layer(backend: impl Backend) -> RateLimitLayer {
    let builder = RateLimitLayer::builder(backend).limit(queue());
    builder.build().unwrap()
}

fn millis(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap()
}

#[tokio::test(start_paused = true)]
async fn requests_pass_at_an_even_pace_and_excess_requests_are_rejected_immediately() {
    let stores: [(Arc<dyn Backend>, u64); 2] = [
        (Arc::new(Memory::default()), 0),
        (Arc::new(Remote::after(Duration::from_millis(5))), 5),
    ];
    for (backend, behind) in stores {
        let started = Instant::now();
        let inner = service_fn(move |_: Request<()>| {
            let body = Bytes::from(millis(started).to_string());
            ready(Ok::<_, Infallible>(Response::new(body)))
        });
        let mut service = layer(backend).layer(inner);
        let mut calls = Vec::new();
        for _ in 0..5 {
            calls.push(tokio::spawn(service.ready().await.unwrap().call(get())));
        }
        let rejected = calls.pop().unwrap().await.unwrap().unwrap();
        assert_eq!(rejected.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(millis(started), behind);
        for (n, call) in (0_u64..).zip(calls) {
            let response = call.await.unwrap().unwrap();
            assert_eq!(response.status(), StatusCode::OK);
            let expected = (100 * n + behind).to_string();
            assert_eq!(response.body(), expected.as_bytes(), "{n}");
        }
    }
}

/// The bucket has fewer tokens than the queue has places, so it is the policy that `check` reports.
#[tokio::test(start_paused = true)]
async fn a_limiter_of_several_policies_returns_the_wait_of_the_queue() {
    let bucket = Policy::new("bucket", Quota::per_second(10).burst(2));
    let limiter = Limiter::builder(Memory::default(), queue()).limit(bucket);
    let limiter = limiter.build().unwrap();
    for (delay, remaining) in [(0, 1), (100, 0)] {
        let decision = limiter.check("key").await.unwrap();
        assert_eq!(decision.delay, Duration::from_millis(delay));
        assert_eq!(decision.remaining, remaining);
    }
    let rejected = limiter.check("key").await.unwrap();
    assert!(!rejected.allowed);
    assert_eq!(rejected.delay, Duration::ZERO);
}

fn is_ready<S: Service<Request<()>>>(service: &mut S) -> bool {
    let poll = service.poll_ready(&mut Context::from_waker(Waker::noop()));
    matches!(poll, Poll::Ready(Ok(())))
}

#[tokio::test(start_paused = true)]
async fn a_waiting_request_holds_no_permit_and_readies_a_clone_at_its_turn() {
    let probe = Probe::default();
    for remote in [false, true] {
        let backend: Arc<dyn Backend> = match remote {
            false => Arc::new(Memory::default()),
            true => Arc::new(Remote::after(Duration::from_millis(1))),
        };
        let limited = ConcurrencyLimitLayer::new(1).layer(probe.twin());
        let mut service = layer(backend).layer(limited);
        let mut other = service.clone();
        service.ready().await.unwrap().call(get()).await.unwrap();
        let started = Instant::now();
        let waits = tokio::spawn(service.ready().await.unwrap().call(get()));
        sleep(Duration::from_millis(50)).await;
        // The only permit is free; this service takes it.
        assert!(is_ready(&mut other));
        sleep(Duration::from_millis(100)).await;
        assert!(!waits.is_finished(), "its turn has come, and no permit");
        drop(other);
        assert_eq!(waits.await.unwrap().unwrap().status(), StatusCode::OK);
        assert_eq!(millis(started), 150);
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_while_it_waits_leaves_the_others_in_their_places() {
    let probe = Probe::default();
    let mut service = layer(Memory::default()).layer(probe.twin());
    let mut calls = Vec::new();
    for _ in 0..4 {
        calls.push(service.ready().await.unwrap().call(get()));
    }
    drop(calls.remove(1));
    let started = Instant::now();
    let mut times = Vec::new();
    for call in calls {
        call.await.unwrap();
        times.push(millis(started));
    }
    assert_eq!(times, [0, 200, 300]);
    assert_eq!(probe.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn requests_of_any_type_queue_too_and_are_bounded_by_the_longest_wait_of_a_throttle() {
    let work = || service_fn(async |(): ()| Ok::<_, Infallible>(()));
    let started = Instant::now();
    let layer = CallLimitLayer::builder(Memory::default()).limit(queue());
    let mut service = layer.build().unwrap().layer(work());
    for at in [0, 100, 200] {
        service.ready().await.unwrap().call(()).await.unwrap();
        assert_eq!(millis(started), at);
    }

    let started = Instant::now();
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(queue())
        .waiting();
    let layer = layer.max_wait(Duration::from_millis(150)).build().unwrap();
    let mut service = layer.layer(work());
    let first = service.call(());
    let second = service.call(());
    let Err(LimitError::RateLimited(third)) = service.call(()).await else {
        panic!("200 ms are too long")
    };
    assert_eq!(third.reason(), Reason::TooLong);
    assert_eq!(millis(started), 0);
    first.await.unwrap();
    second.await.unwrap();
    assert_eq!(millis(started), 100);
    // The third request has returned its place.
    service.call(()).await.unwrap();
    assert_eq!(millis(started), 200);
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_the_wait() {
    #[derive(Clone, Default)]
    struct Told(Arc<Mutex<Vec<Duration>>>);

    impl Observer for Told {
        fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
            match event {
                Event::Allowed(decided) => assert_eq!(decided.iter().count(), 1),
                Event::Waited(waited) => self.0.lock().unwrap().push(waited),
                _ => {}
            }
        }
    }

    let told = Told::default();
    let layer = RateLimitLayer::builder(Memory::default()).limit(queue());
    let layer = layer.observer(told.clone()).build().unwrap();
    let mut service = layer.layer(Probe::default());
    for _ in 0..2 {
        drop(service.ready().await.unwrap().call(get()));
    }
    assert_eq!(*told.0.lock().unwrap(), [Duration::from_millis(100)]);
}

#[tokio::test(start_paused = true)]
async fn a_shadow_delays_no_request() {
    for remote in [false, true] {
        let backend: Arc<dyn Backend> = match remote {
            false => Arc::new(Memory::default()),
            true => Arc::new(Remote::after(Duration::from_millis(1))),
        };
        let layer = RateLimitLayer::builder(backend).limit(queue()).shadow();
        // Without the deny cache every request reaches the backend.
        let layer = layer.deny_cache(false);
        let mut service = layer.build().unwrap().layer(Probe::default());
        let started = Instant::now();
        for _ in 0..6 {
            let response = send(&mut service, get()).await;
            assert_eq!(response.status(), StatusCode::OK);
        }
        let expected = if remote { 6 } else { 0 };
        assert_eq!(millis(started), expected);
    }
}

/// Fails at the second poll for readiness.
#[derive(Clone)]
struct Failing(Arc<AtomicUsize>);

impl Service<Request<()>> for Failing {
    type Response = Response<Bytes>;
    type Error = &'static str;
    type Future = Ready<Result<Response<Bytes>, &'static str>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), &'static str>> {
        Poll::Ready(match self.0.fetch_add(1, Relaxed) {
            0 | 1 => Ok(()),
            _ => Err("broken"),
        })
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        ready(Ok(Response::new(Bytes::new())))
    }
}

#[tokio::test(start_paused = true)]
async fn a_clone_that_does_not_get_ready_is_a_failure_that_can_be_left_uncounted() {
    let failures = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&failures);
    let layer = RateLimitLayer::builder(Memory::default())
        .limit(queue())
        .refund_when(move |response| {
            counted.fetch_add(usize::from(response.is_none()), Relaxed);
            response.is_none()
        })
        .build()
        .unwrap();
    let mut service = layer.layer(Failing(Arc::default()));
    let first = service.ready().await.unwrap().call(get());
    let second = service.ready().await.unwrap().call(get());
    assert!(first.await.is_ok());
    assert_eq!(second.await.unwrap_err(), "broken");
    assert_eq!(failures.load(Relaxed), 1);
}
