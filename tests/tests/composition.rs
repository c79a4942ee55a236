//! Retry and hedge together: one budget, and no more attempts than both allow.
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::StatusCode;
use http_body_util::Full;
use tests::{Answer, Probe, Request};
use tower::{Layer, Service, ServiceExt};
use tower_attempt::{Attempt, AttemptKind, Deadline, HedgeOverride, RetryOverride};
use tower_hedge_latency::{Budget, HedgeInfo, HedgeLayer, Http};
use tower_jitter_retry::{
    Backoff, CallInfo, Event, Jitter, Observer, RetryInfo, RetryLayer, StopReason,
};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn get() -> Request {
    Request::new(Full::new(Bytes::new()))
}

fn put(body: &'static str) -> Request {
    let mut request = Request::new(Full::new(Bytes::from(body)));
    *request.method_mut() = http::Method::PUT;
    request
}

fn retry(budget: Budget) -> RetryLayer<Http> {
    let backoff = Backoff::constant(ms(50));
    let builder = RetryLayer::builder().backoff(backoff).budget(budget);
    builder.http().build().unwrap()
}

fn hedge(budget: Budget) -> HedgeLayer<Http> {
    let builder = HedgeLayer::builder().fixed(ms(10)).max_hedges(2);
    let builder = builder.shared_budget(budget).http();
    builder
        .hedge_unsafe_if(|request| request.method() == http::Method::PUT)
        .build()
        .unwrap()
}

/// Every attempt is slow and fails, so without a budget each call would make nine attempts.
#[tokio::test(start_paused = true)]
async fn one_budget_bounds_the_extra_load_of_retries_and_hedges_together() {
    let budget = Budget::ratio(0.2).burst(10);
    let probe = Probe::new(|n, _| match n % 4 {
        // Successful calls deposit, and are hedged, too.
        0 => Answer::OK.after(100),
        _ => Answer::UNAVAILABLE.after(100),
    });
    let stack = retry(budget.clone()).layer(hedge(budget).layer(probe.clone()));
    let (mut calls, mut successes) = (0_u32, 0_u32);
    for _ in 0..500 {
        let response = stack.clone().oneshot(get()).await.unwrap();
        calls += 1;
        successes += u32::from(response.status() == StatusCode::OK);
        let extra = u32::try_from(probe.record().calls()).unwrap() - calls;
        assert!(extra <= 10 + successes / 5, "{extra} after {calls} calls");
    }
    let extra = u32::try_from(probe.record().calls()).unwrap() - calls;
    assert!(
        successes > 100 && extra >= successes / 5,
        "{extra} for {successes}"
    );
}

#[tokio::test(start_paused = true)]
async fn without_successes_only_the_burst_is_spent() {
    let budget = Budget::ratio(0.2).burst(10);
    let probe = Probe::always(Answer::UNAVAILABLE.after(100));
    let stack = retry(budget.clone()).layer(hedge(budget).layer(probe.clone()));
    for _ in 0..100 {
        stack.clone().oneshot(get()).await.unwrap();
    }
    assert_eq!(probe.record().calls(), 110);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_is_not_hedged_again_below() {
    let probe = Probe::always(Answer::OK.after(1_000));
    let one = || {
        let builder = HedgeLayer::builder().fixed(ms(10));
        builder.http().build().unwrap()
    };
    let stack = one().layer(one().layer(one().layer(probe.clone())));
    stack.oneshot(get()).await.unwrap();
    // Each layer hedges the first attempt, and no layer hedges a hedge: 4 attempts instead of 8.
    assert_eq!(probe.record().calls(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_retry_of_a_hedge_is_still_a_hedge() {
    let probe = Probe::new(|n, _| match n {
        1 => Answer::OK.never(),
        2 => Answer::UNAVAILABLE,
        _ => Answer::OK,
    });
    let builder = HedgeLayer::builder().fixed(ms(10));
    let hedge = builder.http().build().unwrap();
    let stack = hedge.layer(retry(Budget::unlimited()).layer(probe.clone()));
    stack.oneshot(get()).await.unwrap();
    let attempts: Vec<_> = attempts(&probe).into_iter().flatten().collect();
    assert_eq!(attempts, [Attempt::hedge(2), Attempt::hedge(2)]);
}

#[tokio::test(start_paused = true)]
async fn extra_attempts_carry_their_number_and_kind() {
    let probe = Probe::always(Answer::UNAVAILABLE);
    let mut stack = retry(Budget::unlimited()).layer(probe.clone());
    stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(
        attempts(&probe),
        [None, Some(Attempt::retry(2)), Some(Attempt::retry(3))]
    );

    let probe = Probe::always(Answer::OK.after(25));
    let mut stack = hedge(Budget::unlimited()).layer(probe.clone());
    stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(
        attempts(&probe),
        [None, Some(Attempt::hedge(2)), Some(Attempt::hedge(3))]
    );
    assert_eq!(Attempt::hedge(2).kind(), AttemptKind::Hedge);
}

fn attempts(probe: &Probe) -> Vec<Option<Attempt>> {
    let calls = probe.record().extensions();
    calls.iter().map(|call| call.get().copied()).collect()
}

#[tokio::test(start_paused = true)]
async fn retries_and_hedges_share_the_body() {
    let probe = Probe::new(|n, request: &Request| {
        let body = request.body().clone().into_inner();
        assert_eq!(body.as_deref(), Some(&b"hello"[..]));
        match n {
            1 => Answer::UNAVAILABLE,
            2 => Answer::OK.after(1_000),
            _ => Answer::OK,
        }
    });
    let budget = Budget::unlimited();
    let mut stack = retry(budget.clone()).layer(hedge(budget).layer(probe.clone()));
    let response = stack.ready().await.unwrap().call(put("hello")).await;
    assert_eq!(response.unwrap().status(), StatusCode::OK);
    assert_eq!(probe.record().calls(), 3);
    assert_eq!(probe.record().peak(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_retry_waits_as_long_as_the_server_asks() {
    let probe = Probe::new(|n, _| match n {
        1 => Answer::UNAVAILABLE.retry_after(2),
        _ => Answer::OK,
    });
    let mut stack = retry(Budget::unlimited()).layer(probe.clone());
    stack.ready().await.unwrap().call(get()).await.unwrap();
    let second = probe.record().call_times()[1];
    assert!((2_000..=2_200).contains(&second), "{second}");

    let probe = Probe::always(Answer::UNAVAILABLE.retry_after(u64::MAX));
    let mut stack = retry(Budget::unlimited()).layer(probe.clone());
    let response = stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(probe.record().calls(), 1);
}

/// reqwest-retry retries a POST on any 5xx.
#[tokio::test(start_paused = true)]
async fn a_post_is_retried_only_after_a_429_or_with_an_idempotency_key() {
    let post = |key: bool| {
        let mut request = put("order");
        *request.method_mut() = http::Method::POST;
        if key {
            let headers = request.headers_mut();
            headers.insert("idempotency-key", "\"1\"".parse().unwrap());
        }
        request
    };
    for (answer, key, calls) in [
        (Answer::UNAVAILABLE, false, 1),
        (Answer::error("reset"), false, 1),
        (Answer::status(StatusCode::TOO_MANY_REQUESTS), false, 3),
        (Answer::UNAVAILABLE, true, 3),
    ] {
        let probe = Probe::always(answer);
        let mut stack = retry(Budget::unlimited()).layer(probe.clone());
        let _ = stack.ready().await.unwrap().call(post(key)).await;
        assert_eq!(probe.record().calls(), calls, "{answer:?}, key: {key}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_websocket_handshake_is_neither_retried_nor_hedged() {
    let budget = Budget::ratio(0.0).burst(1);
    let probe = Probe::always(Answer::UNAVAILABLE.after(100));
    let mut stack = retry(budget.clone()).layer(hedge(budget.clone()).layer(probe.clone()));
    let mut handshake = get();
    let headers = handshake.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "websocket".parse().unwrap());
    let response = stack.ready().await.unwrap().call(handshake).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(probe.record().calls(), 1);
    assert!(budget.withdraw().is_some());
}

/// failsafe-go checks its budget only after the sleep.
#[tokio::test(start_paused = true)]
async fn an_exhausted_budget_answers_without_a_wait() {
    let start = tokio::time::Instant::now();
    let probe = Probe::always(Answer::UNAVAILABLE.retry_after(30));
    let mut stack = retry(Budget::ratio(0.0).initial(0)).layer(probe);
    let response = stack.ready().await.unwrap().call(get()).await.unwrap();
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

/// aws-smithy keeps one permit per client, which concurrent calls overwrite.
#[tokio::test(start_paused = true)]
async fn concurrent_calls_each_hold_their_own_permit() {
    let budget = Budget::ratio(0.0).burst(3);
    let probe = Probe::always(Answer::UNAVAILABLE);
    let stack = retry(budget.clone()).layer(probe.clone());
    let calls: Vec<_> = (0..10)
        .map(|_| tokio::spawn(stack.clone().oneshot(get())))
        .collect();
    tokio::time::sleep(ms(1)).await;
    assert!(budget.withdraw().is_none());
    // Each call that waits for its retry holds a permit.
    calls.iter().for_each(tokio::task::JoinHandle::abort);
    for call in calls {
        let _ = call.await;
    }
    let free = std::iter::from_fn(|| budget.withdraw()).collect::<Vec<_>>();
    assert_eq!(free.len() + probe.record().calls(), 3 + 10);
}

/// Polly waits for the losers before it returns the winner.
#[tokio::test(start_paused = true)]
async fn losers_are_dropped_before_the_winner_is_returned() {
    let probe = Probe::new(|n, _| match n {
        2 => Answer::OK.after(5),
        _ => Answer::OK.never(),
    })
    .permits(3);
    let mut stack = hedge(Budget::unlimited()).layer(probe.clone());
    let call = stack.ready().await.unwrap().call(get());
    let mut call = std::pin::pin!(call);
    let response = call.as_mut().await.unwrap();
    // The losers are dropped even while the call's future still exists.
    assert_eq!(probe.record().in_flight(), 0);
    assert_eq!(probe.record().live_responses(), 1);
    drop(response);
    assert_eq!(probe.record().live_responses(), 0);
}

/// tower 0.5.3 neither classifies nor counts a request that its policy does not clone.
#[tokio::test(start_paused = true)]
async fn a_request_that_cannot_be_resent_is_classified_and_counted() {
    let budget = Budget::ratio(1.0).burst(1).initial(0);
    let stops = Arc::new(Mutex::new(Vec::new()));
    let layer = RetryLayer::builder()
        .budget(budget.clone())
        .observer(Arc::new(Stops(Arc::clone(&stops))))
        .http()
        .build()
        .unwrap();
    let service = tower::service_fn(|request: http::Request<axum::body::Body>| async move {
        let status = request.uri().path().trim_start_matches('/').parse();
        let status = StatusCode::from_u16(status.unwrap()).unwrap();
        let response = http::Response::builder().status(status);
        Ok::<_, Infallible>(response.body(()).unwrap())
    });
    let mut service = layer.layer(service);
    for status in [503, 200] {
        let request = http::Request::get(format!("/{status}"));
        let request = request
            .header("upgrade", "websocket")
            .body(axum::body::Body::empty());
        let response = service.ready().await.unwrap().call(request.unwrap()).await;
        assert_eq!(response.unwrap().status(), status);
    }
    let stops = stops.lock().unwrap();
    assert_eq!(*stops, [StopReason::NotResendable, StopReason::Success]);
    assert!(budget.withdraw().is_some());
}

/// Records the stop reason of each call.
struct Stops(Arc<Mutex<Vec<StopReason>>>);

impl Observer for Stops {
    fn on_event(&self, _: &CallInfo, event: Event<'_>) {
        if let Event::CallEnded { reason, .. } = event {
            self.0.lock().unwrap().push(reason);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_deadline_and_no_call_waits_for_one() {
    let backoff = Backoff::constant(ms(100)).jitter(Jitter::None);
    let builder = RetryLayer::builder().backoff(backoff).max_attempts(10);
    let layer = builder.http().retry_until(ms(250)).build().unwrap();
    for (deadline, attempts, millis) in [
        // Attempts start at 0, 100 and 200 ms; the next would start at 300 ms.
        (None, 3, 200),
        (Some(ms(100)), 1, 0),
        (Some(ms(101)), 2, 100),
        (Some(Duration::MAX), 10, 900),
    ] {
        let mut request = get();
        if let Some(deadline) = deadline {
            let own = RetryOverride::new().deadline(Deadline::after(deadline));
            request.extensions_mut().insert(own);
        }
        let probe = Probe::always(Answer::UNAVAILABLE);
        let start = tokio::time::Instant::now();
        let response = layer.layer(probe.clone()).oneshot(request).await.unwrap();
        assert_eq!(start.elapsed(), ms(millis));
        assert_eq!(probe.record().calls(), attempts);
        let info: &RetryInfo = response.extensions().get().unwrap();
        let expected = match attempts {
            10 => StopReason::AttemptsExhausted,
            _ => StopReason::DeadlineExceeded,
        };
        assert_eq!(info.stop, expected);
    }
}

#[tokio::test(start_paused = true)]
async fn no_hedge_is_sent_after_the_deadline() {
    for (millis, attempts) in [(10, 1), (11, 2), (20, 2), (21, 3)] {
        // The deadline of retries is that of hedges, unless they have their own.
        for (retry, hedge) in [(millis, None), (1, Some(millis))] {
            let until = |millis| Deadline::after(ms(millis));
            let probe = Probe::always(Answer::OK.after(100));
            let mut request = get();
            let retry = RetryOverride::new().deadline(until(retry));
            request.extensions_mut().insert(retry);
            if let Some(hedge) = hedge {
                let hedge = HedgeOverride::new().deadline(until(hedge));
                request.extensions_mut().insert(hedge);
            }
            let stack = self::hedge(Budget::unlimited()).layer(probe.clone());
            stack.oneshot(request).await.unwrap();
            assert_eq!(probe.record().calls(), attempts, "{millis} ms");
        }
    }
}

/// The report in the response of one call over a probe with these answers.
async fn info(
    layer: RetryLayer<Http>,
    answer: impl Fn(u32) -> Answer + Send + Sync + 'static,
) -> Option<RetryInfo> {
    let probe = Probe::new(move |n, _| answer(n));
    let response = layer.layer(probe).oneshot(get()).await.unwrap();
    response.extensions().get().copied()
}

#[tokio::test(start_paused = true)]
async fn a_response_carries_the_retry_info_of_its_call() {
    let backoff = Backoff::exponential(ms(100), ms(1_000)).jitter(Jitter::None);
    let layer = |budget| {
        let builder = RetryLayer::builder().backoff(backoff).budget(budget);
        builder.http().build().unwrap()
    };
    let told = |info: Option<RetryInfo>| info.map(|it| (it.attempts, it.slept, it.stop));
    let unlimited = || layer(Budget::unlimited());

    assert_eq!(info(unlimited(), |_| Answer::OK).await, None);
    let fatal = Answer::status(StatusCode::NOT_IMPLEMENTED);
    assert_eq!(info(unlimited(), move |_| fatal).await, None);

    let twice = info(unlimited(), |n| {
        if n < 3 {
            Answer::UNAVAILABLE
        } else {
            Answer::OK
        }
    });
    let expected = (3, ms(100 + 200), StopReason::Success);
    assert_eq!(told(twice.await), Some(expected));
    let then_fatal = info(
        unlimited(),
        move |n| if n < 2 { Answer::UNAVAILABLE } else { fatal },
    );
    assert_eq!(
        told(then_fatal.await),
        Some((2, ms(100), StopReason::Fatal))
    );
    let never = info(unlimited(), |_| Answer::UNAVAILABLE);
    let expected = (3, ms(100 + 200), StopReason::AttemptsExhausted);
    assert_eq!(told(never.await), Some(expected));
    let denied = info(layer(Budget::ratio(0.0).initial(0)), |_| {
        Answer::UNAVAILABLE
    });
    let expected = (1, ms(0), StopReason::BudgetExhausted);
    assert_eq!(told(denied.await), Some(expected));
    let too_long = info(unlimited(), |_| Answer::UNAVAILABLE.retry_after(61));
    let expected = (1, ms(0), StopReason::RetryAfterTooLong);
    assert_eq!(told(too_long.await), Some(expected));
}

#[tokio::test(start_paused = true)]
async fn a_response_carries_the_hedge_info_of_its_call() {
    for (slow, expected) in [
        (vec![], None),
        (vec![1], Some((Some(Attempt::hedge(2)), 2))),
        (vec![1, 2], Some((Some(Attempt::hedge(3)), 3))),
        (vec![2, 3], None),
    ] {
        let probe = Probe::new(move |n, _| match slow.contains(&n) {
            true => Answer::OK.after(100),
            false => Answer::OK.after(5),
        });
        let stack = hedge(Budget::unlimited()).layer(probe);
        let response = stack.oneshot(get()).await.unwrap();
        let info = response.extensions().get::<HedgeInfo>();
        let told = info.map(|info| (info.winner, info.attempts));
        assert_eq!(told, expected);
        assert!(info.is_none_or(|info| info.delay == ms(10)));
    }
    // The first attempt wins although it was hedged.
    let probe = Probe::always(Answer::OK.after(15));
    let stack = hedge(Budget::unlimited()).layer(probe);
    let response = stack.oneshot(get()).await.unwrap();
    let info = response.extensions().get::<HedgeInfo>().unwrap();
    assert_eq!((info.winner, info.attempts), (Some(Attempt::PRIMARY), 2));
}
