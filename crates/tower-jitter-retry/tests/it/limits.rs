//! Hard time limits: the instant at which they end a call, and the outcome.

use std::convert::Infallible;
use std::future::{Pending, pending};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, advance, sleep};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_jitter_retry::{Backoff, DelaySource, Elapsed, RetryLayer, StopReason, Verdict};

use crate::support::Event::{Scheduled, Started, Stopped};
use crate::support::{BoxError, Log, assert_no_request, builder, call, fail, ms, next};

fn elapsed(error: &BoxError) -> Elapsed {
    *error.downcast_ref().expect("a timeout")
}

#[tokio::test(start_paused = true)]
async fn an_attempt_that_times_out_is_dropped_and_retried() {
    let log = Log::default();
    let layer = builder().observer(log.clone()).attempt_timeout(ms(30));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    advance(ms(29)).await;
    assert_pending!(call.poll());
    assert_eq!(log.take(), [Started(1)]);
    advance(ms(1)).await;
    assert!(call.is_woken());
    assert_pending!(call.poll());
    assert_eq!(log.take(), [Scheduled(1, ms(100), DelaySource::Backoff)]);
    drop(first);

    // The next attempt has the same limit, counted from its own start.
    advance(ms(100)).await;
    assert_pending!(call.poll());
    let second = next(&mut handle).await;
    advance(ms(29)).await;
    assert_pending!(call.poll());
    second.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
    assert_eq!(log.take(), [Started(2), Stopped(2, StopReason::Success)]);
}

#[tokio::test(start_paused = true)]
async fn the_last_attempts_timeout_is_the_outcome() {
    let layer = builder().max_attempts(1).attempt_timeout(ms(30));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    let _first = next(&mut handle).await;
    advance(ms(30)).await;
    let error = assert_ready_err!(call.poll());
    assert_eq!(elapsed(&error), Elapsed::Attempt(ms(30)));
    assert_eq!(error.to_string(), "the attempt timed out after 30ms");
}

#[tokio::test(start_paused = true)]
async fn a_response_at_the_last_moment_counts() {
    let layer = builder().attempt_timeout(ms(30)).deadline(ms(30));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    advance(ms(30)).await;
    first.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
}

#[tokio::test(start_paused = true)]
async fn when_both_limits_expire_the_call_times_out() {
    let layer = builder().attempt_timeout(ms(30)).deadline(ms(30));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    let _first = next(&mut handle).await;
    advance(ms(30)).await;
    let error = assert_ready_err!(call.poll());
    assert_eq!(elapsed(&error), Elapsed::Call(ms(30)));
}

/// For instance, the service has its own timer for the same instant.
#[tokio::test(start_paused = true)]
async fn a_retryable_failure_when_a_limit_expires_is_a_timeout() {
    let (mut call, mut handle) = call!(builder().deadline(ms(30)).build().unwrap());
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    advance(ms(30)).await;
    first.send_error("too late");
    let error = assert_ready_err!(call.poll());
    assert_eq!(elapsed(&error), Elapsed::Call(ms(30)));
}

/// The outcome contains more information than a timeout, and no retry would have followed.
#[tokio::test(start_paused = true)]
async fn a_fatal_outcome_when_a_limit_expires_is_returned_as_it_is() {
    let layer = builder().classify_fn(|_: &Result<u32, BoxError>, _| Verdict::Fatal);
    let layer = layer.attempt_timeout(ms(30)).deadline(ms(30));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    let first = next(&mut handle).await;
    advance(ms(30)).await;
    first.send_error("invalid");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "invalid");
}

/// A request that timed out may have been processed.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_timed_out_is_retried_only_if_the_rule_allows_it() {
    for (timeouts, attempts) in [(false, 1), (true, 3)] {
        let log = Log::default();
        let layer = builder().backoff(Backoff::none()).observer(log.clone());
        let layer = layer.retry_if(move |outcome: &Result<(), BoxError>| match outcome {
            Err(error) if error.is::<Elapsed>() => timeouts,
            other => other.is_err(),
        });
        let silent = service_fn(|()| pending::<Result<(), BoxError>>());
        let service = layer.attempt_timeout(ms(10)).build().unwrap();
        let error = service.layer(silent).oneshot(()).await.unwrap_err();
        assert_eq!(elapsed(&error), Elapsed::Attempt(ms(10)));
        let started = log.take().into_iter();
        let started = started.filter(|event| matches!(event, Started(_)));
        assert_eq!(started.count(), attempts);
    }
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_an_attempt() {
    let log = Log::default();
    let layer = builder().observer(log.clone()).deadline(ms(250));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    advance(ms(50)).await;
    fail(&mut handle).await;
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    let _second = next(&mut handle).await;
    advance(ms(99)).await;
    assert_pending!(call.poll());
    advance(ms(1)).await;
    assert!(call.is_woken());
    let error = assert_ready_err!(call.poll());
    assert_eq!(elapsed(&error), Elapsed::Call(ms(250)));
    let last = log.take().pop();
    assert_eq!(last, Some(Stopped(2, StopReason::DeadlineExceeded)));
}

#[tokio::test(start_paused = true)]
async fn the_deadline_ends_the_wait_for_readiness() {
    let (mut call, mut handle) = call!(builder().deadline(ms(250)).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    handle.allow(0);
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(150)).await;
    assert!(call.is_woken());
    assert_eq!(
        elapsed(&assert_ready_err!(call.poll())),
        Elapsed::Call(ms(250))
    );
}

/// The caller receives the failure, not the timeout in which the wait would end.
#[tokio::test(start_paused = true)]
async fn a_failure_whose_retry_would_be_after_the_deadline_is_returned_immediately() {
    let log = Log::default();
    let layer = builder().observer(log.clone()).deadline(ms(100));
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "failed");
    let last = log.take().pop();
    assert_eq!(last, Some(Stopped(1, StopReason::DeadlineExceeded)));
}

#[tokio::test(start_paused = true)]
async fn limits_beyond_the_clock_are_no_limits() {
    let layer = builder()
        .attempt_timeout(Duration::MAX)
        .deadline(Duration::MAX);
    let (mut call, mut handle) = call!(layer.retry_until(Duration::MAX).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
}

/// The longest time from now that the clock can represent, to within some nanoseconds.
fn longest() -> Duration {
    let (now, mut longest, mut step) = (Instant::now(), Duration::ZERO, Duration::MAX);
    while !step.is_zero() {
        let more = longest.saturating_add(step);
        if now.checked_add(more).is_some() {
            longest = more;
        }
        step /= 2;
    }
    longest
}

/// tokio's timer rounds up to a millisecond, which overflows at the end of the clock.
#[tokio::test(start_paused = true)]
async fn limits_up_to_the_end_of_the_clock_do_not_panic() {
    for layer in [
        builder().attempt_timeout(longest()),
        builder().deadline(longest()),
        builder().deadline(longest()).attempt_timeout(ms(2_000)),
    ] {
        let (mut call, mut handle) = call!(layer.build().unwrap());
        assert_pending!(call.poll());
        let first = next(&mut handle).await;
        advance(ms(1_000)).await;
        assert_pending!(call.poll());
        first.send_error("failed");
        assert_pending!(call.poll());
        advance(ms(100)).await;
        assert_pending!(call.poll());
        next(&mut handle).await.send_response(2);
        assert_eq!(assert_ready_ok!(call.poll()), 2);
    }
}

#[derive(Debug, PartialEq)]
enum StoreError {
    Late(Elapsed),
}

#[tokio::test(start_paused = true)]
async fn a_closure_makes_the_outcome_of_a_timeout_for_any_error_type() {
    let layer = RetryLayer::builder()
        .deadline(ms(20))
        .on_timeout(|elapsed| Err(StoreError::Late(elapsed)))
        .build()
        .unwrap();
    let never = service_fn(|(): ()| pending::<Result<(), StoreError>>());
    let error = layer.layer(never).oneshot(()).await.unwrap_err();
    assert_eq!(error, StoreError::Late(Elapsed::Call(ms(20))));
}

/// Counts the attempts whose futures still exist.
#[derive(Clone, Default)]
struct Alive(Arc<AtomicU32>);

struct Attempt(Alive, Pending<Result<(), BoxError>>);

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Future for Attempt {
    type Output = Result<(), BoxError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(&mut self.1).poll(cx)
    }
}

impl Service<()> for Alive {
    type Response = ();
    type Error = BoxError;
    type Future = Attempt;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, (): ()) -> Attempt {
        self.0.fetch_add(1, Ordering::Relaxed);
        Attempt(self.clone(), pending())
    }
}

#[tokio::test(start_paused = true)]
async fn a_timed_out_attempt_is_dropped_before_the_wait() {
    let alive = Alive::default();
    let layer = builder().attempt_timeout(ms(30)).build().unwrap();
    let call = tokio::spawn(layer.layer(alive.clone()).oneshot(()));
    sleep(ms(29)).await;
    assert_eq!(alive.0.load(Ordering::Relaxed), 1);
    // During the wait of 100 ms after the first attempt.
    sleep(ms(51)).await;
    assert_eq!(alive.0.load(Ordering::Relaxed), 0);
    let start = Instant::now();
    call.await.unwrap().unwrap_err();
    // The second attempt is sent at 130 ms and ends at 160 ms; the third is sent at 360 ms.
    assert_eq!(start.elapsed(), ms(390 - 80));
}

#[cfg(feature = "http")]
mod http;

#[test]
fn a_time_limit_of_zero_is_rejected() {
    let error = builder()
        .attempt_timeout(Duration::ZERO)
        .build()
        .unwrap_err();
    let expected = "attempt_timeout is 0ns, but must be longer than nothing";
    assert_eq!(error.to_string(), expected);
    let error = builder().deadline(Duration::ZERO).build().unwrap_err();
    assert_eq!(
        error.to_string(),
        "deadline is 0ns, but must be longer than nothing"
    );
}
