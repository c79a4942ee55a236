//! Leaky queues under a throttle with a bounded wait.

use super::*;

#[tokio::test(start_paused = true)]
async fn an_unused_place_in_a_queue_goes_to_no_other_request() {
    let log = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&log);
    let started = Instant::now();
    let inner = service_fn(move |number: u32| {
        seen.lock().unwrap().push((number, millis(started)));
        ready(Ok::<_, Infallible>(()))
    });
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("queue", Quota::per_second(10)).leaky_queue(Duration::from_secs(9)));
    let layer = layer.waiting().build().unwrap();
    // The first turn comes immediately, but the inner service is not ready.
    let (never_ready, mut handle) = tower_test::mock::pair::<u32, ()>();
    handle.allow(0);
    let mut first = Box::pin(layer.layer(never_ready).call(0));
    assert!(timeout(Duration::ZERO, &mut first).await.is_err());
    let mut service = layer.layer(inner);
    let second = service.call(1);
    let third = service.call(2);
    drop((first, third));
    let fourth = service.call(3);
    let (second, fourth) = tokio::join!(second, fourth);
    second.unwrap();
    fourth.unwrap();
    assert_eq!(*log.lock().unwrap(), [(1, 100), (3, 300)]);
}

/// Concurrent requests over a slow backend: no request takes a place in the queue and then discards it.
#[tokio::test(start_paused = true)]
async fn a_throttle_over_a_full_queue_admits_requests_at_the_rate() {
    for delay in [0, 1, 7] {
        let backend = Remote::after(Duration::from_millis(delay));
        let layer = CallLimitLayer::builder(backend).limit(
            Policy::new("queue", Quota::per_second(500)).leaky_queue(Duration::from_secs(60)),
        );
        let layer = layer.waiting().max_wait(Duration::from_millis(100));
        let layer = layer.build().unwrap();
        let passed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&passed);
        let inner = service_fn(move |()| {
            counted.fetch_add(1, Relaxed);
            ready(Ok::<_, Infallible>(()))
        });
        let mut service = layer.layer(inner);
        for _ in 0..2_000 {
            tokio::spawn(service.call(()));
            sleep(Duration::from_millis(1)).await;
        }
        let passed = passed.load(Relaxed);
        assert!((940..=1_050).contains(&passed), "{passed} of 1000");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_leaves_a_queue_refunds_the_other_policies() {
    let layer = CallLimitLayer::builder(Memory::default())
        .limit(Policy::new("bucket", Quota::per_hour(3)))
        .limit(Policy::new("queue", Quota::per_second(10)).leaky_queue(Duration::from_secs(9)));
    let layer = layer.waiting().build().unwrap();
    let mut service = layer.layer(service_fn(|()| ready(Ok::<_, Infallible>(()))));
    let calls: Vec<_> = (0..3).map(|_| service.call(())).collect();
    drop(calls);
    for _ in 0..3 {
        service.call(()).await.unwrap();
    }
}
