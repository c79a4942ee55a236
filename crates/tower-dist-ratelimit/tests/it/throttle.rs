//! Requests that wait for their turn.

mod bounds;
mod chance;
mod leaving;
mod neighbours;

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    task::JoinHandle,
    time::{Instant, advance, sleep, timeout},
};
use tower::{
    BoxError, Layer, Service, limit::ConcurrencyLimitLayer, service_fn, util::BoxCloneService,
};
use tower_dist_ratelimit::{
    CallLimitLayer, Event, FailureMode, LimitError, MissingKey, Observer, Policy, Quota, Reason,
    RequestPolicy, Throttle, ThrottleLayer,
    backend::{Backend, Memory},
};
use tower_test::mock;

use crate::support::{Broken, Remote, Told};

/// A request with its number, key and cost.
#[derive(Clone, Copy)]
struct Call(u32, u64, u64);

/// Requests that reached the inner service, with times in milliseconds.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<(u32, u64)>>>);

impl Log {
    fn seen(&self) -> Vec<(u32, u64)> {
        self.0.lock().unwrap().clone()
    }
}

type Inner = BoxCloneService<Call, u32, BoxError>;

fn inner(log: &Log) -> Inner {
    let (log, started) = (log.clone(), Instant::now());
    BoxCloneService::new(service_fn(move |call: Call| {
        let millis = u64::try_from(started.elapsed().as_millis()).unwrap();
        log.0.lock().unwrap().push((call.0, millis));
        async move { Ok(call.0) }
    }))
}

/// Ten requests per second, with this burst.
fn ten(burst: u64) -> Quota {
    Quota::per_second(10).burst(burst)
}

fn layer(backend: impl Backend, quota: Quota) -> ThrottleLayer<Call> {
    let policy = Policy::new("p", quota).by_request(|call: &Call| call.1);
    CallLimitLayer::builder(backend)
        .limit(policy.cost_fn(|call| call.2))
        .waiting()
        .build()
        .unwrap()
}

/// Makes the call now and awaits it in a task. Returns the reason of a rejection.
fn spawn(service: &mut Throttle<Inner, Call>, call: Call) -> JoinHandle<Result<u32, Reason>> {
    let future = service.call(call);
    tokio::spawn(async move {
        future.await.map_err(|error| match error {
            LimitError::RateLimited(rejected) => rejected.reason(),
            LimitError::Inner(error) => panic!("{error}"),
        })
    })
}

async fn settled() {
    // All ready tasks run, and no time passes.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_pass_one_by_one_in_the_order_of_their_calls() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..11)
        .map(|n| spawn(&mut service, Call(n, 0, 1)))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected: Vec<_> = (0..11).map(|n| (n, u64::from(n) * 100)).collect();
    assert_eq!(log.seen(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_passes_exactly_at_its_time() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..3).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    settled().await;
    advance(Duration::from_millis(99)).await;
    settled().await;
    assert_eq!(log.seen(), [(0, 0)]);
    advance(Duration::from_millis(1)).await;
    settled().await;
    assert_eq!(log.seen(), [(0, 0), (1, 100)]);
    drop(calls);
}

#[tokio::test(start_paused = true)]
async fn requests_wait_for_their_costs_in_order() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(4)).layer(inner(&log));
    let calls = [4, 3, 1, 4];
    let calls = (0..)
        .zip(calls)
        .map(|(n, cost)| spawn(&mut service, Call(n, 0, cost)));
    let calls: Vec<_> = calls.collect();
    let late = spawn(&mut service, Call(9, 0, 3));
    assert_eq!(
        late.await.unwrap(),
        Err(Reason::TooLong),
        "800 ms and 300 more"
    );
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.seen(), [(0, 0), (1, 300), (2, 400), (3, 800)]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_leaves_its_place_to_the_next() {
    // The first in line, one in the middle, the last.
    for dropped in [1, 2, 4] {
        let log = Log::default();
        let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
        let calls: Vec<_> = (0..5).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
        sleep(Duration::from_millis(50)).await;
        calls[dropped].abort();
        for (n, call) in calls.into_iter().enumerate() {
            assert_eq!(call.await.is_err(), n == dropped);
        }
        let others = (0..5_u32).filter(|&n| n as usize != dropped);
        let expected: Vec<_> = others.zip((0..).map(|n| n * 100)).collect();
        assert_eq!(log.seen(), expected, "{dropped}");
    }
}

#[tokio::test(start_paused = true)]
async fn keys_do_not_wait_for_one_another() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..6)
        .map(|n| spawn(&mut service, Call(n, u64::from(n % 2), 1)))
        .collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected = [(0, 0), (1, 0), (2, 100), (3, 100), (4, 200), (5, 200)];
    assert_eq!(log.seen(), expected);
}

/// The same key of another policy is a different key.
#[tokio::test(start_paused = true)]
async fn policies_that_do_not_apply_together_do_not_wait_for_one_another() {
    let policies = [0, 1].map(|rest| {
        let policy = Policy::new(rest.to_string(), ten(1)).missing_key(MissingKey::Skip);
        policy.by_request(move |call: &Call| (u64::from(call.0) % 2 == rest).then_some(call.1))
    });
    let layer = CallLimitLayer::builder(Memory::default());
    let layer = policies
        .into_iter()
        .fold(layer, |layer, policy| layer.limit(policy));
    let layer = layer.waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let calls = [0, 2, 4, 1, 3].map(|n| spawn(&mut service, Call(n, 7, 1)));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected = [(0, 0), (1, 0), (2, 100), (3, 100), (4, 200)];
    assert_eq!(log.seen(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_several_policies_together() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("fast", ten(1)))
        .limit(Policy::new("slow", Quota::per_second(2).burst(2)))
        .waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let calls: Vec<_> = (0..4).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    // A token of the slow policy may be almost due, so the fourth call waits.
    let hopes = spawn(&mut service, Call(4, 0, 1));
    let started = Instant::now();
    let rejected = spawn(&mut service, Call(5, 0, 1)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::ZERO);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.seen(), [(0, 0), (1, 100), (2, 500), (3, 1000)]);
    assert_eq!(hopes.await.unwrap(), Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::from_secs(1));
}
