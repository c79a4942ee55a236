//! Corrections that are sent to a remote backend.

use super::*;
use crate::support::{Mood, Scripted};

#[tokio::test(start_paused = true)]
async fn corrections_reach_a_remote_backend_and_no_request_waits_for_them() {
    let layer = builder(Remote::after(Duration::from_millis(20)))
        .build()
        .unwrap();
    handle(&layer).await.settle(1);
    sleep(Duration::from_millis(21)).await;
    assert_eq!(left(&layer).await, 99);
    assert_eq!(layer.lost_corrections(), 0);
}

#[tokio::test(start_paused = true)]
async fn corrections_that_do_not_arrive_are_counted() {
    // The backend decides in time, and is late from then on.
    let remote = Remote::after(Duration::from_millis(1));
    let delay = remote.delay();
    let layer = builder(remote).build().unwrap();
    let first = handle(&layer).await;
    let second = handle(&layer).await;
    *delay.lock().unwrap() = Duration::from_secs(9);
    first.settle(1);
    assert_eq!(layer.lost_corrections(), 0);
    sleep(Duration::from_millis(51)).await;
    assert_eq!(layer.lost_corrections(), 1);
    // This thread has no runtime to send the correction.
    std::thread::spawn(move || second.settle(1)).join().unwrap();
    assert_eq!(layer.lost_corrections(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_queue_of_corrections_is_bounded() {
    let remote = Remote::after(Duration::from_millis(1));
    let delay = remote.delay();
    let layer = RateLimitLayer::builder(remote).limit(Policy::new("p", slow(9_999)));
    let layer = layer.handle().build().unwrap();
    let handle = handle(&layer).await;
    *delay.lock().unwrap() = Duration::from_millis(20);
    for _ in 0..1_030 {
        handle.charge(1);
    }
    assert_eq!(layer.lost_corrections(), 6);
    sleep(Duration::from_millis(21)).await;
    handle.charge(1);
    sleep(Duration::from_millis(21)).await;
    assert_eq!(layer.lost_corrections(), 6, "there is room again");
}

#[tokio::test(start_paused = true)]
async fn corrections_end_with_the_layer() {
    let remote = Remote::after(Duration::from_millis(1));
    let delay = remote.delay();
    let layer = builder(remote).build().unwrap();
    let handle = handle(&layer).await;
    *delay.lock().unwrap() = Duration::from_secs(9);
    handle.settle(1);
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    assert_eq!(tasks(), 1);
    drop((handle, layer));
    tokio::task::yield_now().await;
    assert_eq!(tasks(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_allowed_without_a_decision_has_nothing_to_settle() {
    let layer = builder(Broken).failure_mode(FailureMode::Open);
    let layer = layer.build().unwrap();
    let handle = handle(&layer).await;
    let (_, decision) = handle.decisions().next().unwrap();
    assert_eq!((decision.source, decision.granted), (Source::Allowed, 0));
    handle.settle(7);
    handle.charge(7);
    assert_eq!(layer.lost_corrections(), 0);
}

#[tokio::test(start_paused = true)]
async fn limiters_over_a_shared_backend_share_corrections() {
    let store: Arc<dyn Backend> = Arc::new(Memory::default());
    let layer = builder(Arc::clone(&store)).build().unwrap();
    let limiter = Limiter::new(store, policy()).unwrap();
    handle(&layer).await.settle(1);
    // An equal policy over the same backend is the same bucket.
    assert_eq!(limiter.peek(None::<&str>).await.unwrap().remaining, 99);
}

#[tokio::test(start_paused = true)]
async fn a_cost_equal_to_the_reservation_sends_no_correction() {
    let store = Scripted::new(Mood::AtOnce);
    let layer = builder(store.clone()).build().unwrap();
    for (actual, asked) in [(10, 1), (9, 3)] {
        handle(&layer).await.settle(actual);
        assert_eq!(store.asked(), asked);
    }
}
