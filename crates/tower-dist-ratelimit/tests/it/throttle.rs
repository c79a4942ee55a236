//! Requests that wait for their turn.

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
    CallLimitLayer, Decided, LimitError, Observer, OnError, Policy, Quota, Reason, Refusal,
    RequestPolicy, Throttle, ThrottleLayer,
    backend::{Backend, Memory},
};
use tower_test::mock;

use crate::support::{Broken, Remote};

/// A request with its number, key and cost.
#[derive(Clone, Copy)]
struct Call(u32, u64, u64);

/// When which request reached the inner service, in milliseconds.
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

/// Ten requests a second, one at a time.
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

/// Makes the call now and waits for it elsewhere. What fails is its reason.
fn spawn<O>(service: &mut Throttle<Inner, Call, O>, call: Call) -> JoinHandle<Result<u32, Reason>>
where
    O: Observer + Clone + Send + 'static,
{
    let future = service.call(call);
    tokio::spawn(async move {
        future.await.map_err(|error| match error {
            LimitError::Refused(refused) => refused.reason(),
            LimitError::Inner(error) => panic!("{error}"),
        })
    })
}

async fn settled() {
    // Everybody who can go on does, and no time passes.
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
async fn a_request_passes_at_its_time_and_not_before() {
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
async fn the_service_is_ready_whatever_the_limit_and_the_inner_service_say() {
    let (mock, mut handle) = mock::pair::<Call, u32>();
    handle.allow(0);
    let mut service = layer(Memory::default(), ten(1)).layer(mock);
    let cx = &mut std::task::Context::from_waker(std::task::Waker::noop());
    for n in 0..3 {
        assert!(service.poll_ready(cx).is_ready());
        drop(service.call(Call(n, 0, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn who_would_wait_too_long_is_refused_at_once() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..11)
        .map(|n| spawn(&mut service, Call(n, 0, 1)))
        .collect();
    let started = Instant::now();
    for n in 11..20 {
        let refused = spawn(&mut service, Call(n, 0, 1)).await.unwrap();
        assert_eq!(refused, Err(Reason::TooLong), "{n}");
    }
    // A smaller one is not let in before the others, and another key's bucket is another's.
    assert_eq!(spawn(&mut service, Call(20, 1, 1)).await.unwrap(), Ok(20));
    assert_eq!(started.elapsed(), Duration::ZERO);
    // At 100 ms there is one less before it.
    sleep(Duration::from_millis(100)).await;
    let fits = spawn(&mut service, Call(21, 0, 1));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fits.await.unwrap(), Ok(21));
    assert_eq!(log.seen().last(), Some(&(21, 1100)));
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_is_refused_at_once_too_if_its_cost_takes_too_long() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(20)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 20)).await.unwrap(), Ok(0));
    let started = Instant::now();
    let refused = spawn(&mut service, Call(1, 0, 11)).await.unwrap();
    assert_eq!(refused, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::ZERO);
    let never = spawn(&mut service, Call(2, 0, 21)).await.unwrap();
    assert_eq!(never, Err(Reason::Quota));
    assert_eq!(spawn(&mut service, Call(3, 0, 10)).await.unwrap(), Ok(3));
    assert_eq!(log.seen(), [(0, 0), (3, 1000)]);
}

#[tokio::test(start_paused = true)]
async fn costs_are_waited_for_in_order() {
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
async fn who_is_dropped_gives_its_place_to_those_behind() {
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
async fn a_place_that_is_given_back_can_be_taken() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..11)
        .map(|n| spawn(&mut service, Call(n, 0, 1)))
        .collect();
    settled().await;
    let refused = spawn(&mut service, Call(11, 0, 1)).await.unwrap();
    assert_eq!(refused, Err(Reason::TooLong));
    calls[5].abort();
    settled().await;
    assert_eq!(spawn(&mut service, Call(12, 0, 1)).await.unwrap(), Ok(12));
    assert_eq!(log.seen().last(), Some(&(12, 1000)));
}

#[tokio::test(start_paused = true)]
async fn the_queue_is_bounded_over_all_keys() {
    let policy = Policy::new("p", ten(1)).by_request(|call: &Call| call.1);
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(policy)
        .waiting();
    let log = Log::default();
    let mut service = layer.max_waiters(2).build().unwrap().layer(inner(&log));
    let mut other = service.clone();
    let calls: Vec<_> = (0..4)
        .map(|n| spawn(&mut service, Call(n, n.into(), 1)))
        .collect();
    let waits = [
        spawn(&mut service, Call(4, 0, 1)),
        spawn(&mut other, Call(5, 1, 1)),
    ];
    for key in [0, 2] {
        let full = spawn(&mut other, Call(6, key, 1)).await.unwrap();
        assert_eq!(full, Err(Reason::QueueFull));
    }
    assert_eq!(
        spawn(&mut other, Call(7, 9, 1)).await.unwrap(),
        Ok(7),
        "need not wait"
    );
    for call in calls.into_iter().chain(waits) {
        call.await.unwrap().unwrap();
    }
    assert_eq!(spawn(&mut other, Call(8, 0, 1)).await.unwrap(), Ok(8));
    assert_eq!(log.seen().last(), Some(&(8, 200)));
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

#[tokio::test(start_paused = true)]
async fn several_policies_are_waited_for_together() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("fast", ten(1)))
        .limit(Policy::new("slow", Quota::per_second(2).burst(2)))
        .waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let calls: Vec<_> = (0..4).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    // A token of the slow one may be almost there, as far as the fourth can see.
    let hopes = spawn(&mut service, Call(4, 0, 1));
    let started = Instant::now();
    let refused = spawn(&mut service, Call(5, 0, 1)).await.unwrap();
    assert_eq!(refused, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::ZERO);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.seen(), [(0, 0), (1, 100), (2, 500), (3, 1000)]);
    assert_eq!(hopes.await.unwrap(), Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_taken_after_the_turn_has_come_and_not_held_before() {
    let log = Log::default();
    let limited = ConcurrencyLimitLayer::new(1).layer(inner(&log));
    let service = layer(Memory::default(), ten(1)).layer(limited);
    let (mut throttled, mut direct) = (service.clone(), service);
    // Not ready when it is called.
    let first = throttled.call(Call(0, 0, 1));
    let waits = throttled.call(Call(1, 0, 1));
    first.await.unwrap();
    // The one that waits holds nothing: another key gets the only permit.
    timeout(Duration::ZERO, direct.call(Call(2, 1, 1)))
        .await
        .unwrap()
        .unwrap();
    waits.await.unwrap();
    assert_eq!(log.seen(), [(0, 0), (2, 0), (1, 100)]);
}

#[tokio::test(start_paused = true)]
async fn tokens_that_were_not_used_come_back() {
    let (mock, mut handle) = mock::pair::<Call, u32>();
    handle.allow(0);
    let mut service = layer(Memory::default(), ten(1)).layer(mock);
    // Its turn has come, and the inner service is not ready.
    let mut unready = Box::pin(service.call(Call(0, 0, 1)));
    assert!(timeout(Duration::ZERO, &mut unready).await.is_err());
    drop(unready);
    handle.allow(1);
    let started = Instant::now();
    let call = tokio::spawn(service.call(Call(1, 0, 1)));
    let (request, respond) = handle.next_request().await.unwrap();
    respond.send_response(request.0);
    assert_eq!(call.await.unwrap().unwrap(), 1);
    assert_eq!(started.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn readiness_that_fails_is_the_call_s_error() {
    let (mock, mut handle) = mock::pair::<Call, u32>();
    let mut service = layer(Memory::default(), ten(1)).layer(mock);
    handle.send_error("broken");
    let Err(LimitError::Inner(error)) = service.call(Call(0, 0, 1)).await else {
        panic!("it was ready")
    };
    assert_eq!(error.to_string(), "broken");
}

#[tokio::test(start_paused = true)]
async fn a_remote_store_is_asked_by_the_first_in_line_only() {
    let log = Log::default();
    let remote = Remote::after(Duration::from_millis(7));
    let mut service = layer(remote, ten(1)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 1)).await.unwrap(), Ok(0));
    let calls: Vec<_> = (1..4).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // All three ask at 7 ms, before anybody knows that there is a line, and are told at 14 that 93 ms are missing. From then
    // on the first waits for its tokens, asks, and has its answer 7 ms later; then the next one asks how long it takes.
    assert_eq!(log.seen(), [(0, 7), (1, 114), (2, 221), (3, 328)]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_refuses_or_allows_and_nobody_waits() {
    for (action, result) in [
        (OnError::Deny, Err(Reason::Backend)),
        (OnError::Allow, Ok(0)),
    ] {
        let layer = CallLimitLayer::builder(Broken).limit(Policy::new("p", ten(1)));
        let layer = layer.on_backend_error(action).waiting().build().unwrap();
        let mut service = layer.layer(inner(&Log::default()));
        let started = Instant::now();
        assert_eq!(spawn(&mut service, Call(0, 0, 1)).await.unwrap(), result);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn who_has_to_share_with_other_lines_waits_no_longer_than_the_longest_wait() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", ten(1)))
        .limit(Policy::new("each", Quota::per_second(100)).by_request(|call: &Call| call.1))
        .waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let started = Instant::now();
    // Nobody knows at once that 16 are too many, because no line has more than 8.
    let calls = (0..16).map(|n| spawn(&mut service, Call(n, u64::from(n % 2), 1)));
    let calls: Vec<_> = calls.collect();
    let mut passed = 0;
    for call in calls {
        match call.await.unwrap() {
            Ok(_) => passed += 1,
            Err(reason) => assert_eq!(reason, Reason::TooLong),
        }
    }
    assert_eq!(started.elapsed(), Duration::from_secs(1));
    assert_eq!(passed, 11, "one each 100 ms, from 0 to 1000");
    let times: Vec<_> = log.seen().iter().map(|call| call.1).collect();
    assert_eq!(times, (0..11).map(|n| n * 100).collect::<Vec<_>>());
}

/// Keeps what it is told, as text.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn allowed(&self, _: &Decided<'_>) {
        self.0.lock().unwrap().push("allowed".into());
    }

    fn refused(&self, refusal: &Refusal<'_>) {
        self.0
            .lock()
            .unwrap()
            .push(format!("refused {:?}", refusal.reason()));
    }

    fn waited(&self, waited: Duration) {
        self.0.lock().unwrap().push(format!("waited {waited:?}"));
    }

    fn cancelled(&self) {
        self.0.lock().unwrap().push("cancelled".into());
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_is_told_of_each_request_once_and_of_its_wait() {
    let told = Told::default();
    let policy = RequestPolicy::from(Policy::new("p", ten(1)));
    let layer = CallLimitLayer::builder(Memory::default()).limit(policy);
    let layer = layer.observer(told.clone()).waiting().max_waiters(2);
    let mut service = layer.build().unwrap().layer(inner(&Log::default()));
    let mut calls: Vec<_> = (0..4).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    settled().await;
    calls.remove(2).abort();
    for call in calls {
        let _ = call.await.unwrap();
    }
    let told = told.0.lock().unwrap().clone();
    let expected = [
        "allowed",
        "refused QueueFull",
        "cancelled",
        "waited 100ms",
        "allowed",
    ];
    assert_eq!(told, expected);
}

#[test]
fn futures_and_layers_are_send_and_sync_when_the_service_is() {
    fn check<T: Send + Sync + 'static>(_: T) {}
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let _entered = runtime.enter();
    let layer = layer(Remote::after(Duration::ZERO), ten(1));
    let mut service = layer.layer(service_fn(|_: Call| {
        std::future::ready(Ok::<_, BoxError>(()))
    }));
    check(service.call(Call(0, 0, 1)));
    check(service);
    check(layer);
}

#[test]
fn waits_of_nothing_and_without_end_are_not_built() {
    let builder = || {
        let layer = CallLimitLayer::<Call>::builder(Memory::default());
        layer.limit(Policy::new("p", ten(1))).waiting()
    };
    for (wait, value) in [
        (Duration::ZERO, "0ns"),
        (Duration::from_secs(3601), "3601s"),
    ] {
        let error = builder().max_wait(wait).build().unwrap_err();
        assert_eq!((error.field(), error.value()), ("max_wait", value));
        assert_eq!(error.bound(), "above 0 and at most 3600s");
    }
    let error = builder().max_waiters(0).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "max_waiters is 0, but must be at least 1"
    );
    assert!(
        builder()
            .max_wait(Duration::from_secs(3600))
            .build()
            .is_ok()
    );
}
