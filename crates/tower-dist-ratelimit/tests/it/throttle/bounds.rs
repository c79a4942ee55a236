//! Bounds on the wait and on the number of waiting requests.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_request_that_would_wait_too_long_is_rejected_immediately() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..11)
        .map(|n| spawn(&mut service, Call(n, 0, 1)))
        .collect();
    let started = Instant::now();
    for n in 11..20 {
        let rejected = spawn(&mut service, Call(n, 0, 1)).await.unwrap();
        assert_eq!(rejected, Err(Reason::TooLong), "{n}");
    }
    // Requests of another key have their own bucket and do not wait.
    assert_eq!(spawn(&mut service, Call(20, 1, 1)).await.unwrap(), Ok(20));
    assert_eq!(started.elapsed(), Duration::ZERO);
    // At 100 ms one fewer request is ahead.
    sleep(Duration::from_millis(100)).await;
    let fits = spawn(&mut service, Call(21, 0, 1));
    // The queue's estimate also applies to requests that arrive now.
    settled().await;
    let rejected = spawn(&mut service, Call(22, 0, 1)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::from_millis(100));
    for call in calls {
        call.await.unwrap().unwrap();
    }
    assert_eq!(fits.await.unwrap(), Ok(21));
    assert_eq!(log.seen().last(), Some(&(21, 1100)));
}

#[tokio::test(start_paused = true)]
async fn the_head_of_the_queue_is_rejected_immediately_if_its_cost_takes_too_long() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(20)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 20)).await.unwrap(), Ok(0));
    let started = Instant::now();
    let rejected = spawn(&mut service, Call(1, 0, 11)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::ZERO);
    let never = spawn(&mut service, Call(2, 0, 21)).await.unwrap();
    assert_eq!(never, Err(Reason::Quota));
    assert_eq!(spawn(&mut service, Call(3, 0, 10)).await.unwrap(), Ok(3));
    assert_eq!(log.seen(), [(0, 0), (3, 1000)]);
}

/// The burst of such a quota can be above zero.
#[tokio::test(start_paused = true)]
async fn a_request_with_a_quota_of_zero_is_rejected_immediately_even_behind_a_queue() {
    let policy = Policy::new("p", ten(1)).by_request(|call: &Call| call.1);
    let policy = policy.quota_by(|call| (call.0 == 9).then(|| Quota::per_second(0).burst(5)));
    let builder = CallLimitLayer::builder(Memory::default()).limit(policy);
    let log = Log::default();
    let mut service = builder.waiting().build().unwrap().layer(inner(&log));
    let calls = [0, 1, 2].map(|n| spawn(&mut service, Call(n, 0, 1)));
    let started = Instant::now();
    let never = spawn(&mut service, Call(9, 0, 1)).await.unwrap();
    assert_eq!(never, Err(Reason::Quota));
    assert_eq!(started.elapsed(), Duration::ZERO);
    for call in calls {
        call.await.unwrap().unwrap();
    }
}

/// Regardless of the requests that wait.
#[tokio::test(start_paused = true)]
async fn a_cost_that_can_never_pass_is_rejected_immediately_even_behind_a_queue() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(4)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 4)).await.unwrap(), Ok(0));
    let waits = [1, 2].map(|n| spawn(&mut service, Call(n, 0, 1)));
    let started = Instant::now();
    for cost in [5, 1_000, u64::MAX] {
        let never = spawn(&mut service, Call(3, 0, cost)).await.unwrap();
        assert_eq!(never, Err(Reason::Quota), "{cost}");
    }
    assert_eq!(started.elapsed(), Duration::ZERO);
    for call in waits {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.seen(), [(0, 0), (1, 100), (2, 200)]);
}

#[tokio::test(start_paused = true)]
async fn a_released_place_can_be_taken() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(1)).layer(inner(&log));
    let calls: Vec<_> = (0..11)
        .map(|n| spawn(&mut service, Call(n, 0, 1)))
        .collect();
    settled().await;
    let rejected = spawn(&mut service, Call(11, 0, 1)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    calls[5].abort();
    settled().await;
    assert_eq!(spawn(&mut service, Call(12, 0, 1)).await.unwrap(), Ok(12));
    assert_eq!(log.seen().last(), Some(&(12, 1000)));
}

/// A request that arrives before the new head of the queue sends its request does not use the wait of the dropped
/// request.
#[tokio::test(start_paused = true)]
async fn a_dropped_expensive_request_no_longer_delays_the_queue() {
    let log = Log::default();
    let mut service = layer(Memory::default(), ten(4)).layer(inner(&log));
    assert_eq!(spawn(&mut service, Call(0, 0, 4)).await.unwrap(), Ok(0));
    let expensive = service.call(Call(1, 0, 4));
    let calls = [Call(2, 0, 1), Call(3, 0, 4)].map(|call| spawn(&mut service, call));
    drop(expensive);
    let late = spawn(&mut service, Call(4, 0, 3));
    for call in calls.into_iter().chain([late]) {
        call.await.unwrap().unwrap();
    }
    assert_eq!(log.seen(), [(0, 0), (2, 100), (3, 500), (4, 800)]);
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
async fn a_request_that_shares_tokens_with_other_queues_waits_at_most_the_longest_wait() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("all", ten(1)))
        .limit(Policy::new("each", Quota::per_second(100)).by_request(|call: &Call| call.1))
        .waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let started = Instant::now();
    // 16 are too many, but no request is rejected immediately, because no queue has more than 8.
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

/// Queued requests know the stock of the policy that did not reject the head of the queue.
#[tokio::test(start_paused = true)]
async fn available_tokens_cause_no_wait() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("stock", ten(30)))
        .limit(Policy::new("even", Quota::per_second(100).burst(1)))
        .waiting();
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let calls = (0..40).map(|n| spawn(&mut service, Call(n, 0, 1)));
    let calls: Vec<_> = calls.collect();
    // A token may be almost due, so this request waits.
    let hopes = spawn(&mut service, Call(40, 0, 1));
    let started = Instant::now();
    // The stock of 30 and the tokens gained meanwhile pass one per 10 ms, later ones as they refill: the 40th after a
    // second.
    let rejected = spawn(&mut service, Call(41, 0, 1)).await.unwrap();
    assert_eq!(rejected, Err(Reason::TooLong));
    assert_eq!(started.elapsed(), Duration::ZERO);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let expected = (0..33).map(|n| (n, u64::from(n) * 10));
    let expected: Vec<_> = expected
        .chain((33..40).map(|n| (n, u64::from(n - 29) * 100)))
        .collect();
    assert_eq!(log.seen(), expected);
    assert_eq!(hopes.await.unwrap(), Err(Reason::TooLong));
}

#[test]
fn zero_and_infinite_waits_are_build_errors() {
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

/// A call takes its place when it is first polled if there is no runtime before.
#[test]
fn a_call_outside_a_runtime_waits_inside_it() {
    let layer = CallLimitLayer::<Call>::builder(Memory::default())
        .limit(Policy::new("p", Quota::per_minute(1)))
        .waiting()
        .max_wait(Duration::from_secs(90));
    let log = Log::default();
    let mut service = layer.build().unwrap().layer(inner(&log));
    let [first, second] = [1, 2].map(|n| service.call(Call(n, 0, 1)));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let started = Instant::now();
        assert_eq!(first.await.unwrap(), 1);
        assert_eq!(started.elapsed(), Duration::ZERO);
        assert_eq!(second.await.unwrap(), 2);
        assert!(started.elapsed() > Duration::ZERO);
    });
}

#[tokio::test(start_paused = true)]
async fn each_rejection_of_a_queue_has_its_text() {
    let policy = Policy::new("p", ten(20)).by_request(|call: &Call| call.1);
    let layer = CallLimitLayer::builder(Memory::default()).limit(policy.cost_fn(|call| call.2));
    let layer = layer.waiting().max_waiters(1).build().unwrap();
    let mut service = layer.layer(inner(&Log::default()));
    assert_eq!(service.call(Call(0, 0, 20)).await.unwrap(), 0);
    let waiting = service.call(Call(1, 0, 1));
    for (call, text) in [
        (Call(2, 0, 1), "rate-limit queue full"),
        (Call(3, 0, 11), "rate-limit wait too long"),
        (Call(4, 0, 21), "rate limit exceeded for policy \"p\""),
    ] {
        assert_eq!(service.call(call).await.unwrap_err().to_string(), text);
    }
    assert_eq!(waiting.await.unwrap(), 1);
}
