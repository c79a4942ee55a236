//! Throttles with the inner service, the backend, the observer and the executor.

use std::task::{Context, Waker};

use super::*;

#[tokio::test(start_paused = true)]
async fn the_service_is_always_ready() {
    let (mock, mut handle) = mock::pair::<Call, u32>();
    handle.allow(0);
    let mut service = layer(Memory::default(), ten(1)).layer(mock);
    let cx = &mut Context::from_waker(Waker::noop());
    for n in 0..3 {
        assert!(service.poll_ready(cx).is_ready());
        drop(service.call(Call(n, 0, 1)));
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_taken_after_the_turn_has_come_and_not_held_before() {
    let log = Log::default();
    let limited = ConcurrencyLimitLayer::new(1).layer(inner(&log));
    let service = layer(Memory::default(), ten(1)).layer(limited);
    let (mut throttled, mut direct) = (service.clone(), service);
    // The inner service is not ready at the call.
    let first = throttled.call(Call(0, 0, 1));
    let waits = throttled.call(Call(1, 0, 1));
    first.await.unwrap();
    // The waiting call holds no permit: another key's call gets the only one.
    timeout(Duration::ZERO, direct.call(Call(2, 1, 1)))
        .await
        .unwrap()
        .unwrap();
    waits.await.unwrap();
    assert_eq!(log.seen(), [(0, 0), (2, 0), (1, 100)]);
}

#[tokio::test(start_paused = true)]
async fn unused_tokens_are_refunded() {
    let (mock, mut handle) = mock::pair::<Call, u32>();
    handle.allow(0);
    let mut service = layer(Memory::default(), ten(1)).layer(mock);
    // Its turn has come, but the inner service is not ready.
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

/// Five tokens in ten seconds; one was for a call whose inner service has not become ready.
#[tokio::test(start_paused = true)]
async fn tokens_of_a_past_window_are_not_refunded_to_the_next() {
    let quota = Quota::new(5, Duration::from_secs(10));
    for policy in [
        Policy::new("fixed", quota).fixed_window(),
        Policy::new("first", quota).fixed_window_from_first_request(),
        Policy::new("log", quota).sliding_window_log(),
    ] {
        let name = policy.name().to_owned();
        let layer = CallLimitLayer::builder(Memory::default()).limit(policy);
        let layer: ThrottleLayer<Call> = layer.waiting().build().unwrap();
        let (never_ready, mut handle) = mock::pair::<Call, u32>();
        handle.allow(0);
        let call = || Box::pin(layer.layer(never_ready.clone()).call(Call(0, 0, 1)));
        let [mut early, mut late] = [call(), call()];
        for unready in [&mut early, &mut late] {
            assert!(timeout(Duration::ZERO, unready).await.is_err());
        }
        let mut service = layer.layer(inner(&Log::default()));
        drop(early);
        for n in 0..4 {
            assert_eq!(spawn(&mut service, Call(n, 0, 1)).await.unwrap(), Ok(n));
        }
        let full = spawn(&mut service, Call(4, 0, 1)).await.unwrap();
        assert_eq!(full, Err(Reason::TooLong), "{name}");
        advance(quota.window()).await;
        for n in 5..10 {
            assert_eq!(spawn(&mut service, Call(n, 0, 1)).await.unwrap(), Ok(n));
        }
        drop(late);
        let full = spawn(&mut service, Call(10, 0, 1)).await.unwrap();
        assert_eq!(full, Err(Reason::TooLong), "{name}");
    }
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
async fn only_the_head_of_the_queue_sends_requests_to_a_remote_backend() {
    let log = Log::default();
    let remote = Remote::after(Duration::from_millis(7));
    let mut service = layer(remote, ten(1)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 1)).await.unwrap(), Ok(0));
    let calls: Vec<_> = (1..4).map(|n| spawn(&mut service, Call(n, 0, 1))).collect();
    for call in calls {
        call.await.unwrap().unwrap();
    }
    // All three calls reach the backend at 7 ms, before a queue exists. At 14 ms they learn that 93 ms are missing.
    // From then on the head waits for its tokens, sends a request, and has its answer 7 ms later. Then the next call
    // sends its request.
    assert_eq!(log.seen(), [(0, 7), (1, 114), (2, 221), (3, 328)]);
}

/// A wait begins with the call, not with the backend's answer.
#[tokio::test(start_paused = true)]
async fn the_latency_of_the_backend_counts_as_a_wait() {
    let log = Log::default();
    let remote = Remote::after(Duration::from_millis(40));
    let mut service = layer(remote, ten(20)).layer(inner(&log));
    let first = spawn(&mut service, Call(0, 0, 20));
    sleep(Duration::from_millis(10)).await;
    let started = Instant::now();
    // The wait is 990 ms, but the answer arrives 40 ms later.
    let rejected = spawn(&mut service, Call(1, 0, 10)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::from_millis(40));
    assert_eq!(first.await.unwrap(), Ok(0));
    // A wait of 940 ms is short enough. Then the call sends one more request to the backend.
    assert_eq!(spawn(&mut service, Call(2, 0, 9)).await.unwrap(), Ok(2));
    assert_eq!(log.seen(), [(0, 40), (2, 980)]);
}

#[tokio::test(start_paused = true)]
async fn a_failing_backend_rejects_or_allows_without_a_wait() {
    for (action, result) in [
        (FailureMode::Closed, Err(Reason::Backend)),
        (FailureMode::Open, Ok(0)),
    ] {
        let layer = CallLimitLayer::builder(Broken).limit(Policy::new("p", ten(1)));
        let layer = layer.failure_mode(action).waiting().build().unwrap();
        let mut service = layer.layer(inner(&Log::default()));
        let started = Instant::now();
        assert_eq!(spawn(&mut service, Call(0, 0, 1)).await.unwrap(), result);
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}

/// Records events as text.
#[derive(Clone, Default)]
struct Told(Arc<Mutex<Vec<String>>>);

impl Observer for Told {
    fn on_event(&self, _: &Arc<str>, event: Event<'_>) {
        self.0.lock().unwrap().push(match event {
            Event::Allowed(_) => "allowed".into(),
            Event::Rejected(rejection) => format!("rejected {:?}", rejection.reason()),
            Event::Waited(waited) => format!("waited {waited:?}"),
            Event::Cancelled => "cancelled".into(),
            _ => return,
        });
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_receives_each_request_once_with_its_wait() {
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
        "rejected QueueFull",
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
