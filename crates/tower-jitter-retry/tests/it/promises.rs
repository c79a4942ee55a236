//! Promises that a change breaks easily.

use std::convert::Infallible;
use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ::http::{HeaderValue, Method, Request, Response};
use bytes::Bytes;
use http_body_util::Full;
use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, assert_ready_err};
use tower::{Layer, ServiceExt, service_fn};
use tower_jitter_retry::{
    Backoff, Budget, CallInfo, Deadline, Event, Http, Jitter, Mode, RetryInfo, RetryLayer,
    RetryLayerBuilder, RetryOverride, Verdict,
};

use crate::support::Event::Scheduled;
use crate::support::{Answer, BoxError, Log, Upstream, builder, call, fail, ms};

type Req = Request<Full<Bytes>>;

fn http() -> RetryLayerBuilder<Http> {
    let b = RetryLayer::builder().backoff(Backoff::none()).http();
    b.budget(Budget::unlimited())
}
fn req(method: Method) -> Req {
    Request::builder()
        .method(method)
        .uri("/")
        .body(Full::default())
        .unwrap()
}
fn get() -> Req {
    req(Method::GET)
}

/// Sends a GET through two layers. Only the outer layer retries a 404.
async fn get_below_a_layer_that_retries_404(upstream: &Upstream) -> Response<Full<Bytes>> {
    let outer = http()
        .classify(|o| match o.status() {
            Some(s) if s == 404 => Verdict::transient(),
            _ => o.verdict(),
        })
        .build()
        .unwrap();
    let inner = http().build().unwrap();
    outer
        .layer(inner.layer(upstream.clone()))
        .oneshot(get())
        .await
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn shadow_below_does_not_change_the_layer_above() {
    for answer in [Answer::status(503), Answer::Error("reset")] {
        let upstream = Upstream::new([answer.clone()]);
        let shadow = http().mode(Mode::Shadow).build().unwrap();
        let outer = http().build().unwrap();
        let _ = outer
            .layer(shadow.layer(upstream.clone()))
            .oneshot(get())
            .await;
        assert_eq!(upstream.seen().len(), 3, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_exhausted_shadow_budget_does_not_stop_the_layer_above() {
    let upstream = Upstream::new([Answer::status(503)]);
    let shadow = RetryLayer::builder()
        .http()
        .mode(Mode::Shadow)
        .budget(Budget::ratio(0.0).burst(1).initial(0))
        .build()
        .unwrap();
    let outer = http().build().unwrap();
    let _ = outer
        .layer(shadow.layer(upstream.clone()))
        .oneshot(get())
        .await;
    assert_eq!(upstream.seen().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn shadow_and_off_do_not_change_requests() {
    for mode in [Mode::Shadow, Mode::Off] {
        let upstream = Upstream::new([Answer::status(200)]);
        let layer = http()
            .mode(mode)
            .generate_idempotency_key(|| HeaderValue::from_static("key"))
            .build()
            .unwrap();
        layer
            .layer(upstream.clone())
            .oneshot(req(Method::POST))
            .await
            .unwrap();
        assert!(
            !upstream.seen()[0].headers.contains_key("idempotency-key"),
            "{mode:?}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_marked_attempt_is_retried_by_one_of_the_layers() {
    let upstream = Upstream::new([
        Answer::status(404),
        Answer::status(503),
        Answer::status(200),
    ]);
    let response = get_below_a_layer_that_retries_404(&upstream).await;
    assert_eq!(
        (upstream.seen().len(), response.status().as_u16()),
        (3, 200)
    );
}

#[tokio::test(start_paused = true)]
async fn a_stalled_attempt_and_a_failed_one_leave_a_third() {
    let n = Arc::new(AtomicU32::new(0));
    let count = n.clone();
    let server = service_fn(move |_: Req| {
        let n = count.fetch_add(1, Ordering::Relaxed);
        async move {
            if n == 0 {
                pending::<()>().await
            }
            let status = if n == 1 { 503 } else { 200 };
            Ok::<_, Infallible>(
                Response::builder()
                    .status(status)
                    .body(Full::<Bytes>::default())
                    .unwrap(),
            )
        }
    });
    let outer = http().attempt_timeout(ms(100)).build().unwrap();
    let inner = http().build().unwrap();
    let Ok(response) = outer.layer(inner.layer(server)).oneshot(get()).await;
    assert_eq!(
        (n.load(Ordering::Relaxed), response.status().as_u16()),
        (3, 200)
    );
}

#[tokio::test(start_paused = true)]
async fn a_layer_that_never_retries_does_not_disable_the_layer_above() {
    for answer in [Answer::status(503), Answer::Error("reset")] {
        let upstream = Upstream::new([answer.clone()]);
        let outer = http().build().unwrap();
        let inner = http().max_attempts(1).build().unwrap();
        let _ = outer
            .layer(inner.layer(upstream.clone()))
            .oneshot(get())
            .await;
        assert_eq!(upstream.seen().len(), 3, "{answer:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_response_after_two_attempts_has_a_report() {
    let upstream = Upstream::new([Answer::status(404), Answer::status(503)]);
    let response = get_below_a_layer_that_retries_404(&upstream).await;
    assert!(upstream.seen().len() > 1);
    assert!(response.extensions().get::<RetryInfo>().is_some());
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_deadline_when_the_clock_jumps() {
    let (mut call, mut handle) = call!(builder().deadline(ms(250)).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    advance(ms(10_000)).await; // a task that was starved
    let _ = assert_ready_err!(call.poll());
    let sent = tokio::time::timeout(ms(1), handle.next_request())
        .await
        .ok()
        .flatten()
        .is_some();
    assert!(!sent, "sent at 10 s with a deadline of 250 ms");
}

#[tokio::test(start_paused = true)]
async fn no_attempt_is_sent_after_the_requests_deadline_when_the_clock_jumps() {
    let upstream = Upstream::new([Answer::status(429), Answer::status(200)]);
    let layer = RetryLayer::builder()
        .backoff(Backoff::constant(ms(100)).jitter(Jitter::None))
        .http()
        .deadline(ms(1_000))
        .build()
        .unwrap();
    let mut post = req(Method::POST);
    post.extensions_mut()
        .insert(RetryOverride::new().deadline(Deadline::after(ms(250))));
    let mut call = tokio_test::task::spawn(layer.layer(upstream.clone()).oneshot(post));
    assert_pending!(call.poll());
    advance(ms(10_000)).await;
    let _ = call.poll();
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn nested_layers_count_a_failure_once() {
    let throttle = Budget::grpc_throttle(8, 0.1);
    let http = || RetryLayer::builder().backoff(Backoff::none()).http();
    let outer = http().budget(throttle.clone()).build().unwrap();
    let inner = http().shared_budget(throttle.clone()).build().unwrap();
    let upstream = Upstream::new([Answer::status(503)]);
    outer
        .layer(inner.layer(upstream.clone()))
        .oneshot(get())
        .await
        .unwrap();
    assert_eq!(upstream.seen().len(), 3);
    assert!(throttle.withdraw().is_some(), "8 - 3 = 5 is above 4");
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_attempt_costs_no_token() {
    struct Panics;
    impl tower_jitter_retry::Observer for Panics {
        fn on_event(&self, _: &CallInfo, event: Event<'_>) {
            if let Event::AttemptStarted { attempt, .. } = event {
                assert!(attempt.number() == 1);
            }
        }
    }
    let budget = Budget::ratio(0.0).burst(1);
    let upstream = Upstream::new([Answer::status(503)]);
    let layer = RetryLayer::builder()
        .backoff(Backoff::none())
        .http()
        .budget(budget.clone())
        .observer(Arc::new(Panics))
        .build()
        .unwrap();
    tokio::spawn(layer.layer(upstream.clone()).oneshot(get()))
        .await
        .unwrap_err();
    assert_eq!(upstream.seen().len(), 1);
    assert!(budget.withdraw().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_finished_call_keeps_no_token() {
    let budget = Budget::ratio(0.0).burst(1);
    let (mut call, mut handle) = call!(builder().budget(budget.clone()).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    handle.allow(0);
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    handle.send_error("closed");
    assert_ready_err!(call.poll());
    assert!(budget.withdraw().is_some());
}
#[tokio::test(start_paused = true)]
async fn a_finished_call_keeps_no_place_in_a_queue() {
    let limited = tower::limit::ConcurrencyLimit::new(
        service_fn(|ms_: u64| async move {
            sleep(ms(ms_)).await;
            Err::<(), BoxError>("failed".into())
        }),
        1,
    );
    let layer = builder().deadline(ms(250)).build().unwrap();
    let mut call = Box::pin(layer.layer(limited.clone()).oneshot(0));
    assert!(futures_poll(&mut call).await.is_none());
    // Another call takes the permit during the backoff.
    let other = tokio::spawn(limited.clone().oneshot(1_000));
    tokio::task::yield_now().await;
    let _ = call.as_mut().await.unwrap_err(); // the deadline
    // `call` still exists, as if it were pinned in a `select!`.
    let _ = other.await;
    let ready = tokio::time::timeout(ms(10_000), limited.clone().oneshot(0)).await;
    assert!(ready.is_ok(), "starved by a call that has ended");
    drop(call);
}
async fn futures_poll<F: Future + Unpin>(f: &mut F) -> Option<F::Output> {
    std::future::poll_fn(|cx| {
        std::task::Poll::Ready(match std::pin::Pin::new(&mut *f).poll(cx) {
            std::task::Poll::Ready(o) => Some(o),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[tokio::test(start_paused = true)]
async fn a_classify_rule_has_the_last_word_on_timeouts_too() {
    let asked = Arc::new(Mutex::new(0));
    let count = asked.clone();
    let layer = http()
        .classify(move |_| {
            *count.lock().unwrap() += 1;
            Verdict::Fatal
        })
        .attempt_timeout(ms(10))
        .build()
        .unwrap();
    let start = Instant::now();
    let never = service_fn(|_: Req| pending::<Result<Response<Full<Bytes>>, Infallible>>());
    let Ok(_) = layer.layer(never).oneshot(get()).await;
    assert_eq!((*asked.lock().unwrap(), start.elapsed()), (1, ms(10)));
}

#[tokio::test(start_paused = true)]
async fn an_empty_idempotency_key_is_none() {
    let upstream = Upstream::new([Answer::status(503)]);
    let mut post = req(Method::POST);
    post.headers_mut()
        .insert("idempotency-key", HeaderValue::from_static(""));
    let _ = http()
        .build()
        .unwrap()
        .layer(upstream.clone())
        .oneshot(post)
        .await;
    assert_eq!(upstream.seen().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_hint_is_a_lower_bound_also_when_a_closure_demands_the_retry() {
    for (method, status) in [(Method::POST, 503), (Method::GET, 404)] {
        let layer = http()
            .max_attempts(2)
            .idempotent_if(|request| request.method() == Method::POST)
            .classify(move |o| match o.status() {
                Some(s) if s == status => Verdict::transient(),
                _ => o.verdict(),
            })
            .build()
            .unwrap();
        let start = Instant::now();
        let upstream = Upstream::new([Answer::Status(status, vec![("retry-after", "5")])]);
        layer
            .layer(upstream.clone())
            .oneshot(req(method))
            .await
            .unwrap();
        assert_eq!(upstream.seen().len(), 2);
        assert!(
            start.elapsed() >= ms(5_000),
            "{status} after {:?}",
            start.elapsed()
        );
    }
}

mod grpc;
