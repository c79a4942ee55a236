//! The attempts of a retry layer and their exact times.

use std::time::Duration;

use tokio::time::{Instant, advance};
use tokio_test::{assert_pending, assert_ready_err, assert_ready_ok, task};
use tower::{Layer, Service};
use tower_jitter_retry::{
    Attempt, Backoff, Budget, Classify, DelaySource, RequestRule, RetryLayer, StopReason, Verdict,
};

use tower_test::mock;

use crate::support::Event::{Scheduled, Started, Stopped};
use crate::support::{BoxError, Event, Log, assert_no_request, builder, call, fail, ms, next};

#[tokio::test(start_paused = true)]
async fn a_success_is_returned_immediately() {
    let log = Log::default();
    let (mut call, mut handle) = call!(builder().observer(log.clone()).build().unwrap());
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(log.take(), [Started(1), Stopped(1, StopReason::Success)]);
}

#[tokio::test(start_paused = true)]
async fn retries_wait_exactly_for_the_backoff() {
    let log = Log::default();
    let (mut call, mut handle) = call!(builder().observer(log.clone()).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());

    advance(ms(99)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert!(call.is_woken());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());

    advance(ms(199)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(3);
    assert_eq!(assert_ready_ok!(call.poll()), 3);
    assert_eq!(
        log.take(),
        [
            Started(1),
            Scheduled(1, ms(100), DelaySource::Backoff),
            Started(2),
            Scheduled(2, ms(200), DelaySource::Backoff),
            Started(3),
            Stopped(3, StopReason::Success),
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_last_outcome_is_returned_untouched_when_attempts_run_out() {
    let log = Log::default();
    let layer = builder().max_attempts(2).observer(log.clone()).build();
    let (mut call, mut handle) = call!(layer.unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    next(&mut handle).await.send_error("the second");
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "the second");
    assert_eq!(
        log.take().pop(),
        Some(Stopped(2, StopReason::AttemptsExhausted))
    );
    assert_no_request(&mut handle);
}

/// tokio's `sleep(0)` takes a millisecond.
#[tokio::test(start_paused = true)]
async fn no_backoff_means_one_turn_of_the_executor_and_no_timer() {
    let start = Instant::now();
    let layer = RetryLayer::builder().backoff(Backoff::none()).build();
    let (mut call, mut handle) = call!(layer.unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    assert!(call.is_woken());
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(2);
    assert_eq!(assert_ready_ok!(call.poll()), 2);
    assert_eq!(start.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_next_attempt_waits_for_readiness_and_passes_its_error_on() {
    let log = Log::default();
    let (mut call, mut handle) = call!(builder().observer(log.clone()).build().unwrap());
    assert_pending!(call.poll());
    fail(&mut handle).await;
    handle.allow(0);
    assert_pending!(call.poll());
    advance(ms(100)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    handle.send_error("closed");
    assert!(call.is_woken());
    assert_eq!(assert_ready_err!(call.poll()).to_string(), "closed");
    assert_eq!(log.take().pop(), Some(Stopped(1, StopReason::NotReady)));
}

#[tokio::test(start_paused = true)]
async fn a_servers_hint_is_a_floor_and_a_longer_one_than_allowed_ends_the_call() {
    let log = Log::default();
    let hinted = |seconds| {
        let verdict = Verdict::throttled().after(Duration::from_secs(seconds));
        let classify = move |outcome: &Result<u32, BoxError>, _: &Attempt| match outcome {
            Ok(_) => Verdict::Success,
            Err(_) => verdict,
        };
        let builder = RetryLayer::builder().backoff(Backoff::default().seed(1));
        let builder = builder.observer(log.clone()).classify_fn(classify);
        builder.build().unwrap()
    };
    let (mut call, mut handle) = call!(hinted(30));
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_pending!(call.poll());
    let Some(Scheduled(1, delay, DelaySource::Server)) = log.take().pop() else {
        panic!("not scheduled");
    };
    assert!(delay > ms(30_000) && delay <= ms(31_000), "{delay:?}");
    advance(ms(30_000)).await;
    assert_pending!(call.poll());
    assert_no_request(&mut handle);
    advance(ms(1_000)).await;
    assert_pending!(call.poll());
    next(&mut handle).await;

    let (mut call, mut handle) = call!(hinted(61));
    assert_pending!(call.poll());
    fail(&mut handle).await;
    assert_ready_err!(call.poll());
    assert_eq!(
        log.take().pop(),
        Some(Stopped(1, StopReason::RetryAfterTooLong))
    );
}

#[tokio::test(start_paused = true)]
async fn a_fatal_outcome_is_returned_immediately_and_deposits_nothing() {
    let budget = Budget::ratio(1.0).burst(1).initial(0);
    let log = Log::default();
    let layer = builder()
        .budget(budget.clone())
        .observer(log.clone())
        .classify_fn(|_: &Result<u32, BoxError>, _| Verdict::Fatal);
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    next(&mut handle).await.send_response(1);
    assert_eq!(assert_ready_ok!(call.poll()), 1);
    assert_eq!(log.take(), [Started(1), Stopped(1, StopReason::Fatal)]);
    assert!(budget.withdraw().is_none());
}

#[tokio::test(start_paused = true)]
async fn a_rules_backoff_sees_the_retry_from_one_and_the_outcome() {
    #[derive(Clone)]
    struct Linear;

    impl RequestRule<u32> for Linear {
        type Context = ();

        fn context(&self, _: &u32) {}
    }

    impl Classify<u32, u32, BoxError> for Linear {
        fn classify(&self, (): &(), _: &Attempt, outcome: &Result<u32, BoxError>) -> Verdict {
            match outcome {
                Ok(_) => Verdict::Success,
                Err(_) => Verdict::transient(),
            }
        }

        fn backoff(&self, retry: u32, outcome: &Result<u32, BoxError>) -> Option<Duration> {
            assert!(outcome.is_err());
            Some(ms(10) * retry)
        }
    }

    let log = Log::default();
    let layer = builder().observer(log.clone()).classify_with(Linear);
    let (mut call, mut handle) = call!(layer.build().unwrap());
    assert_pending!(call.poll());
    for _ in 0..2 {
        fail(&mut handle).await;
        assert_pending!(call.poll());
        advance(ms(20)).await;
        assert_pending!(call.poll());
    }
    let delays: Vec<_> = log
        .take()
        .into_iter()
        .filter(|event| matches!(event, Scheduled(..)))
        .collect();
    assert_eq!(
        delays,
        [
            Scheduled(1, ms(10), DelaySource::Custom),
            Scheduled(2, ms(20), DelaySource::Custom)
        ]
    );
}

/// tower 0.5.3 clones its random state with each request, so all requests sleep the same sequence.
#[tokio::test(start_paused = true)]
async fn no_two_calls_wait_equally_long() {
    let log = Log::default();
    let jittered = || {
        let backoff = Backoff::exponential(ms(10_000), ms(20_000)).seed(7);
        let layer = RetryLayer::builder().backoff(backoff);
        layer.observer(log.clone()).build().unwrap()
    };
    async fn delays(
        layer: RetryLayer<tower_jitter_retry::Generic, tower_jitter_retry::Observed>,
        log: &Log,
    ) -> Vec<Event> {
        let (mut service, mut handle) = mock::spawn_layer::<u32, u32, _>(layer);
        for _ in 0..10 {
            assert_ready_ok!(service.poll_ready());
            // Each call uses its own clone, as servers and clients do.
            let mut clone = mock::Spawn::new(service.get_ref().clone());
            assert_ready_ok!(clone.poll_ready());
            let mut call = task::spawn(clone.call(7));
            assert_pending!(call.poll());
            fail(&mut handle).await;
            assert_pending!(call.poll());
        }
        let mut events = log.take();
        events.retain(|event| matches!(event, Scheduled(..)));
        events
    }
    let first = delays(jittered(), &log).await;
    for (n, delay) in first.iter().enumerate() {
        assert!(!first[..n].contains(delay), "{first:?}");
    }
    assert_eq!(first, delays(jittered(), &log).await);
}

#[tokio::test(start_paused = true)]
async fn a_retuned_layer_changes_from_the_next_call_on() {
    let layer = builder().build().unwrap();
    let (mut service, mut handle) = mock::spawn_layer::<u32, u32, _>(layer.clone());
    assert_ready_ok!(service.poll_ready());
    let mut before = task::spawn(service.call(7));
    layer
        .handle()
        .retune(&builder().max_attempts(1).build().unwrap())
        .unwrap();
    assert_ready_ok!(service.poll_ready());
    let mut after = task::spawn(service.call(7));
    assert_pending!(before.poll());
    assert_pending!(after.poll());
    fail(&mut handle).await;
    fail(&mut handle).await;
    assert_pending!(before.poll());
    assert_ready_err!(after.poll());
}

#[test]
fn a_wrong_value_is_named_with_its_bound() {
    let messages = [
        RetryLayer::builder().max_attempts(0).build(),
        RetryLayer::builder()
            .backoff(Backoff::default().factor(0.0))
            .build(),
        RetryLayer::builder().budget(Budget::ratio(-1.0)).build(),
    ]
    .map(|layer| layer.unwrap_err().to_string());
    assert_eq!(
        messages,
        [
            "max_attempts is 0, but must be at least 1, the first attempt included",
            "backoff.factor is 0.0, but must be finite and at least 1",
            "budget.ratio is -1.0, but must be from 0 to 10 extra attempts per deposit",
        ]
    );
}

/// A recorded body takes memory up to the replay limit, as long as the caller keeps the future.
#[tokio::test(start_paused = true)]
async fn the_copy_of_the_request_is_dropped_with_a_success() {
    let request = std::sync::Arc::new(());
    let service = tower::service_fn(|request: std::sync::Arc<()>| async move {
        drop(request);
        Ok::<_, std::convert::Infallible>(())
    });
    let layer = RetryLayer::builder().build().unwrap();
    let mut service = layer.layer(service);
    let mut call = tokio_test::task::spawn(service.call(request.clone()));
    assert_ready_ok!(call.poll());
    assert_eq!(std::sync::Arc::strong_count(&request), 1);
    drop(call);
}
