//! The failure modes, and the circuit breaker that selects them.

mod answers;
mod corrections;
mod forms;
mod returning;
mod share;

use std::time::Duration;

use bytes::Bytes;
use http::{Response, StatusCode};
use tokio::time::{Instant, advance, sleep};
use tower::{Layer, Service, ServiceExt};
use tower_dist_ratelimit::{
    FailureMode, Limiter, Policy, Quota, RateLimit, RateLimitLayer, Source, key,
};

use crate::support::{Mood, Probe, Scripted, from, get, send};

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// An hourly quota too large to reject a request, with no refill during a test.
fn plenty() -> Quota {
    Quota::per_hour(3_600)
}

/// A service whose backend has this mood.
fn service(mood: Mood, quota: Quota, on_error: FailureMode) -> (Scripted, RateLimit<Probe>) {
    let store = Scripted::new(mood);
    let policy = Policy::new("each", quota).by(key::header("key"));
    let layer = RateLimitLayer::builder(store.clone()).limit(policy);
    let layer = layer.failure_mode(on_error).build().unwrap();
    (store, layer.layer(Probe::default()))
}

/// Returns the response's status and its latency.
async fn timed(service: &mut RateLimit<Probe>) -> (StatusCode, Duration) {
    let started = Instant::now();
    let response: Response<Bytes> = send(service, get()).await;
    (response.status(), started.elapsed())
}

/// Sends five requests that fail immediately, which opens the circuit.
async fn break_down(store: &Scripted, service: &mut RateLimit<Probe>) {
    store.is(Mood::Failing);
    for _ in 0..5 {
        send(service, from("somebody")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn five_requests_wait_for_a_dead_backend_until_the_timeout_and_the_sixth_does_not() {
    for (on_error, status) in [
        (FailureMode::Open, StatusCode::OK),
        (FailureMode::Closed, StatusCode::SERVICE_UNAVAILABLE),
        (FailureMode::Local { instances: 3 }, StatusCode::OK),
    ] {
        let (store, mut service) = service(Mood::Silent, plenty(), on_error);
        for nth in 1..=5 {
            assert_eq!(timed(&mut service).await, (status, ms(50)));
            assert_eq!(
                store.asked(),
                nth,
                "once a request: it may be charged already"
            );
        }
        for _ in 0..100 {
            assert_eq!(timed(&mut service).await, (status, Duration::ZERO));
        }
        assert_eq!(store.asked(), 5);
    }
}

#[tokio::test(start_paused = true)]
async fn the_circuit_opens_when_half_of_ten_decisions_have_failed() {
    let (store, mut service) = service(Mood::AtOnce, plenty(), FailureMode::Open);
    for nth in 1..=10 {
        let mood = if nth % 2 == 0 {
            Mood::FailingAfter(ms(1))
        } else {
            Mood::After(ms(1))
        };
        store.is(mood);
        send(&mut service, get()).await;
        assert_eq!(store.asked(), nth);
    }
    send(&mut service, get()).await;
    assert_eq!(store.asked(), 10, "the tenth was the fifth that failed");
}

#[tokio::test(start_paused = true)]
async fn the_circuit_stays_closed_below_that_failure_rate() {
    let (store, mut service) = service(Mood::AtOnce, plenty(), FailureMode::Open);
    for nth in 1..=600 {
        let mood = if nth % 5 < 2 {
            Mood::FailingAfter(ms(1))
        } else {
            Mood::After(ms(1))
        };
        // Four failures among the first five decisions would open the circuit.
        store.is(if nth < 9 { Mood::After(ms(1)) } else { mood });
        send(&mut service, get()).await;
        assert_eq!(store.asked(), nth);
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_pause_one_request_is_the_probe_and_no_other_request_waits() {
    let (store, mut service) = service(Mood::AtOnce, plenty(), FailureMode::Closed);
    break_down(&store, &mut service).await;
    store.is(Mood::Silent);
    advance(ms(49)).await;
    send(&mut service, get()).await;
    assert_eq!(store.asked(), 5, "too early, however the dice fell");
    advance(ms(51)).await;
    let started = Instant::now();
    let all = (0..20).map(|_| {
        let mut service = service.clone();
        tokio::spawn(async move { timed(&mut service).await })
    });
    let mut waited = Vec::new();
    for one in all.collect::<Vec<_>>() {
        waited.push(one.await.unwrap().1);
    }
    waited.sort();
    assert_eq!(waited[..19], [Duration::ZERO; 19]);
    assert_eq!((waited[19], started.elapsed()), (ms(50), ms(50)));
    assert_eq!(store.asked(), 6);
}

#[tokio::test(start_paused = true)]
async fn pauses_between_probes_double_up_to_two_seconds_and_half_of_each_is_jitter() {
    let (store, mut service) = service(Mood::Failing, plenty(), FailureMode::Open);
    while store.asked() < 12 {
        send(&mut service, get()).await;
        sleep(ms(1)).await;
    }
    let times = store.times();
    let pauses: Vec<_> = times[4..].windows(2).map(|two| two[1] - two[0]).collect();
    let longest = [100, 200, 400, 800, 1_600, 2_000, 2_000].map(ms);
    for (pause, longest) in pauses.iter().zip(longest) {
        // A request arrives every millisecond.
        assert!(
            *pause >= longest / 2 && *pause <= longest + ms(1),
            "{pauses:?}"
        );
    }
    let whole = pauses.iter().zip(longest).filter(|(one, all)| *one == all);
    assert!(whole.count() < 3, "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn after_one_successful_probe_the_backend_decides_again_with_its_own_count() {
    let store = Scripted::new(Mood::After(ms(1)));
    let limiter = Limiter::new(store.clone(), Policy::new("p", Quota::per_hour(100))).unwrap();
    let ask = async || limiter.check("a").await.unwrap();
    let decided = ask().await;
    assert_eq!((decided.source, decided.remaining), (Source::Backend, 99));
    store.is(Mood::Failing);
    // The backend charges these requests, but its answers are lost.
    for nth in 1..=5 {
        let decided = ask().await;
        assert_eq!(decided.source, Source::Local);
        assert_eq!(decided.remaining, 100 - nth, "of its own");
    }
    store.is(Mood::After(ms(1)));
    advance(ms(49)).await;
    assert_eq!(ask().await.source, Source::Local);
    advance(ms(51)).await;
    for nth in 1..=9 {
        let decided = ask().await;
        assert_eq!(decided.source, Source::Backend);
        // The request after the probe charges the six that were decided here.
        let reported = if nth == 1 { 0 } else { 6 };
        assert_eq!(decided.remaining, 94 - nth - reported);
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_probe_delays_the_next_by_at_most_a_timeout_and_a_pause() {
    let (store, mut service) = service(Mood::AtOnce, plenty(), FailureMode::Closed);
    break_down(&store, &mut service).await;
    store.is(Mood::Silent);
    advance(ms(100)).await;
    let probe = service.ready().await.unwrap().call(get());
    assert_eq!(store.asked(), 6);
    drop(probe);
    store.is(Mood::After(ms(1)));
    // 50 ms for the timeout of the probe, and half to all of the pause of 200 ms.
    advance(ms(149)).await;
    assert_eq!(timed(&mut service).await.0, StatusCode::SERVICE_UNAVAILABLE);
    advance(ms(101)).await;
    assert_eq!(timed(&mut service).await, (StatusCode::OK, ms(1)));
    assert_eq!(timed(&mut service).await, (StatusCode::OK, ms(1)));
}

#[tokio::test(start_paused = true)]
async fn failures_of_earlier_requests_do_not_count_after_the_circuit_opened() {
    let (store, mut service) = service(Mood::Silent, plenty(), FailureMode::Closed);
    // A hundred requests time out at 50 ms; the fifth of them opens the circuit.
    let mut early = Vec::new();
    for _ in 0..100 {
        early.push(tokio::spawn(service.ready().await.unwrap().call(get())));
    }
    for one in early {
        let Ok(response) = one.await.unwrap();
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    }
    store.is(Mood::After(ms(1)));
    advance(ms(100)).await;
    for _ in 0..9 {
        assert_eq!(timed(&mut service).await, (StatusCode::OK, ms(1)));
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_are_lost_together_do_not_open_the_circuit() {
    let (store, mut service) = service(Mood::After(ms(1)), plenty(), FailureMode::Closed);
    for _ in 0..100 {
        send(&mut service, get()).await;
    }
    for _ in 0..4 {
        store.is(Mood::Silent);
        let mut lost = Vec::new();
        for _ in 0..10 {
            lost.push(tokio::spawn(service.ready().await.unwrap().call(get())));
        }
        for one in lost {
            let Ok(response) = one.await.unwrap();
            assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        }
    }
    store.is(Mood::After(ms(1)));
    assert_eq!(timed(&mut service).await, (StatusCode::OK, ms(1)));
}

#[tokio::test(start_paused = true)]
async fn decisions_that_took_a_second_count_when_they_end() {
    let store = Scripted::new(Mood::After(ms(1_000)));
    let layer = RateLimitLayer::builder(store.clone()).limit(Policy::new("all", plenty()));
    let layer = layer.backend_timeout(ms(2_000)).build().unwrap();
    let mut service = layer.layer(Probe::default());
    let mut decided = Vec::new();
    for _ in 0..100 {
        decided.push(tokio::spawn(service.ready().await.unwrap().call(get())));
    }
    sleep(ms(100)).await;
    // Ten requests that are lost together, a moment after these decisions.
    store.is(Mood::FailingAfter(ms(1_000)));
    for _ in 0..10 {
        decided.push(tokio::spawn(service.ready().await.unwrap().call(get())));
    }
    for one in decided {
        let Ok(_response): Result<Response<Bytes>, _> = one.await.unwrap();
    }
    store.is(Mood::After(ms(1)));
    send(&mut service, get()).await;
    assert_eq!(store.asked(), 111, "ten failures of 110");
}

#[tokio::test(start_paused = true)]
async fn immediate_answers_of_a_remote_backend_do_not_change_the_circuit() {
    let (store, mut service) = service(Mood::After(ms(1)), plenty(), FailureMode::Closed);
    send(&mut service, get()).await;
    // The backend answers some requests from a local cache, while its server is unreachable.
    for _ in 0..5 {
        store.is(Mood::Silent);
        send(&mut service, get()).await;
        store.is(Mood::AtOnce);
        for _ in 0..9 {
            let _ = timed(&mut service).await;
        }
    }
    let asked = store.asked();
    assert_eq!(timed(&mut service).await.0, StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(store.asked(), asked, "five have failed in a row");
    // Immediate answers do not close the circuit, either.
    advance(ms(100)).await;
    assert_eq!(timed(&mut service).await, (StatusCode::OK, Duration::ZERO));
    store.is(Mood::Silent);
    let asked = store.asked();
    assert_eq!(
        timed(&mut service).await.1,
        ms(50),
        "the next one is the probe"
    );
    assert_eq!(timed(&mut service).await.1, Duration::ZERO);
    assert_eq!(store.asked(), asked + 1);
}

#[tokio::test(start_paused = true)]
async fn a_longer_timeout_makes_longer_pauses() {
    let store = Scripted::new(Mood::Failing);
    let layer = RateLimitLayer::builder(store.clone()).limit(Policy::new("all", plenty()));
    let layer = layer
        .backend_timeout(Duration::from_secs(1))
        .build()
        .unwrap();
    let mut service = layer.layer(Probe::default());
    break_down(&store, &mut service).await;
    advance(ms(999)).await;
    send(&mut service, get()).await;
    assert_eq!(store.asked(), 5);
    advance(ms(1_001)).await;
    send(&mut service, get()).await;
    assert_eq!(store.asked(), 6);
}
