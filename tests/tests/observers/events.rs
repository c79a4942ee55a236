//! The facts that events carry, with exact times.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use tokio::time::timeout;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_hedge_latency::{AttemptOutcome, CallInfo, Event, HedgeLayer, NoObserver, Observer};
use tower_jitter_retry::{Budget, Mode, RetryLayer};

use crate::{Step, backend, get, hedge, ms, retry};

/// Writes each event as a line.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn on_event(&self, call: &CallInfo, event: Event<'_>) {
        let layer = call.layer.as_str();
        self.add(match event {
            Event::AttemptStarted { attempt, .. } => {
                format!("{layer} {} {}", attempt.kind().as_str(), attempt.number())
            }
            Event::AttemptEnded {
                attempt,
                outcome,
                verdict,
                elapsed,
                ..
            } => {
                let (number, label) = (attempt.number(), outcome.label(verdict));
                let outcome = match outcome {
                    AttemptOutcome::Response {
                        http_status: Some(status),
                        ..
                    } => status.to_string(),
                    AttemptOutcome::Error(Some(error)) => format!("error '{error}'"),
                    AttemptOutcome::Error(None) => "error".to_owned(),
                    AttemptOutcome::TimedOut(elapsed) => format!("'{elapsed}'"),
                    AttemptOutcome::Cancelled => "no outcome".to_owned(),
                    other => format!("{other:?}"),
                };
                format!("{number}: {outcome}, {label} after {elapsed:?}")
            }
            Event::RetryScheduled {
                attempt,
                delay,
                source,
                is_shadow,
                ..
            } => {
                let shadow = if is_shadow { ", shadow" } else { "" };
                let (number, source) = (attempt.number(), source.as_str());
                format!("{number}: wait {delay:?}, {source}{shadow}")
            }
            Event::HedgeSkipped {
                attempt, reason, ..
            } => format!("{}: skipped, {}", attempt.number(), reason.as_str()),
            Event::CallEnded { reason, winner, .. } => format!(
                "{layer}: {}, winner {:?}, {} attempts, {} skipped, delays {:?}, took {:?}",
                reason.as_str(),
                winner.map(|winner| winner.number()),
                call.attempts,
                call.skipped,
                call.delays,
                call.elapsed()
            ),
            other => format!("{other:?}"),
        });
    }
}

#[tokio::test(start_paused = true)]
async fn a_retry_reports_each_attempt_each_delay_and_the_totals() {
    let log = Log::default();
    let steps: &[Step] = &[(5, Ok(503)), (6, Err("reset")), (7, Ok(200))];
    let service = retry(log.clone()).build().unwrap().layer(backend(steps));
    service.oneshot(get()).await.unwrap();
    assert_eq!(
        log.take(),
        [
            "retry primary 1",
            "1: 503, transient after 5ms",
            "1: wait 100ms, backoff",
            "retry retry 2",
            "2: error 'reset', transient after 6ms",
            "2: wait 100ms, backoff",
            "retry retry 3",
            "3: 200, success after 7ms",
            "retry: success, winner Some(3), 3 attempts, 0 skipped, delays 200ms, took 218ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_reports_the_reason() {
    let log = Log::default();
    let layer = retry(log.clone()).max_attempts(2).build().unwrap();
    let steps: &[Step] = &[(5, Ok(503)), (5, Ok(503))];
    layer.layer(backend(steps)).oneshot(get()).await.unwrap();
    let end =
        "retry: attempts_exhausted, winner None, 2 attempts, 0 skipped, delays 100ms, took 110ms";
    assert_eq!(log.take().pop().unwrap(), end);

    let mut post = get();
    *post.method_mut() = Method::POST;
    let steps: &[Step] = &[(5, Ok(503))];
    layer.layer(backend(steps)).oneshot(post).await.unwrap();
    assert_eq!(
        log.take(),
        [
            "retry primary 1",
            "1: 503, unsafe after 5ms",
            "retry: fatal, winner None, 1 attempts, 0 skipped, delays 0ns, took 5ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_timeout_is_the_outcome_of_its_attempt() {
    let log = Log::default();
    let layer = retry(log.clone()).attempt_timeout(ms(20)).deadline(ms(130));
    let steps: &[Step] = &[(500, Ok(200)), (500, Ok(200))];
    let service = layer.build().unwrap().layer(backend(steps));
    service.oneshot(get()).await.unwrap_err();
    assert_eq!(
        log.take(),
        [
            "retry primary 1",
            "1: 'the attempt timed out after 20ms', timeout after 20ms",
            "1: wait 100ms, backoff",
            "retry retry 2",
            "2: 'the call timed out after 130ms', timeout after 10ms",
            "retry: deadline_exceeded, winner None, 2 attempts, 0 skipped, delays 100ms, took 130ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_dropped_call_ends_once_as_cancelled() {
    let log = Log::default();
    let layer = retry(log.clone()).build().unwrap();
    let steps: &[Step] = &[(5, Ok(503)), (50, Ok(503))];
    // During the wait, and during the second attempt.
    for limit in [45, 125] {
        let call = layer.layer(backend(steps)).oneshot(get());
        timeout(ms(limit), call).await.unwrap_err();
    }
    assert_eq!(
        log.take(),
        [
            "retry primary 1",
            "1: 503, transient after 5ms",
            "1: wait 100ms, backoff",
            "retry: cancelled, winner None, 1 attempts, 0 skipped, delays 100ms, took 45ms",
            "retry primary 1",
            "1: 503, transient after 5ms",
            "1: wait 100ms, backoff",
            "retry retry 2",
            "2: no outcome, cancelled after 20ms",
            "retry: cancelled, winner None, 2 attempts, 0 skipped, delays 100ms, took 125ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn shadow_mode_reports_the_retry_that_it_does_not_send() {
    let log = Log::default();
    let layer = retry(log.clone()).mode(Mode::Shadow).build().unwrap();
    let steps: &[Step] = &[(5, Ok(503))];
    layer.layer(backend(steps)).oneshot(get()).await.unwrap();
    assert_eq!(
        log.take()[2..],
        [
            "1: wait 100ms, backoff, shadow",
            "retry: shadow, winner None, 1 attempts, 0 skipped, delays 0ns, took 5ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_hedge_reports_the_winner_and_cancels_the_losers() {
    let log = Log::default();
    let steps: &[Step] = &[(90, Ok(200)), (5, Err("reset")), (5, Ok(200))];
    let service = hedge(log.clone()).build().unwrap().layer(backend(steps));
    service.oneshot(get()).await.unwrap();
    assert_eq!(
        log.take(),
        [
            "hedge primary 1",
            "hedge hedge 2",
            "2: error 'reset', transient after 5ms",
            "hedge hedge 3",
            "3: 200, success after 5ms",
            "1: no outcome, cancelled after 25ms",
            "hedge: success, winner Some(3), 3 attempts, 0 skipped, delays 0ns, took 25ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_race_without_a_winner_reports_why() {
    let log = Log::default();
    let poor = Budget::ratio(0.0).burst(1).initial(0);
    let layer = hedge(log.clone()).budget(poor).build().unwrap();
    let cases: [(&'static [Step], &str); 2] = [
        (
            &[(15, Err("reset"))],
            "hedge: attempts_exhausted, winner None, 1 attempts, 1 skipped, delays 0ns, took 15ms",
        ),
        (
            &[(5, Ok(501))],
            "hedge: fatal, winner None, 1 attempts, 0 skipped, delays 0ns, took 5ms",
        ),
    ];
    for (steps, end) in cases {
        let _ = layer.layer(backend(steps)).oneshot(get()).await;
        assert_eq!(log.take().pop().unwrap(), end);
    }
    let steps: &[Step] = &[(90, Ok(200))];
    let call = layer.layer(backend(steps)).oneshot(get());
    timeout(ms(12), call).await.unwrap_err();
    assert_eq!(
        log.take(),
        [
            "hedge primary 1",
            "2: skipped, denied",
            "1: no outcome, cancelled after 12ms",
            "hedge: cancelled, winner None, 1 attempts, 1 skipped, delays 0ns, took 12ms",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn one_observer_sees_both_layers_and_an_error_of_an_unknown_type() {
    struct Unknown;
    let lines = Log::default();
    let hedge = HedgeLayer::builder().fixed(ms(10)).observer(lines.clone());
    let retry = RetryLayer::builder()
        .max_attempts(1)
        .observer(lines.clone());
    let failing = service_fn(|(): ()| async { Err::<(), _>(Unknown) });
    let service = hedge.build().unwrap().layer(failing);
    let service = retry.build().unwrap().layer(service);
    assert!(service.oneshot(()).await.is_err());
    assert_eq!(
        lines.take(),
        [
            "retry primary 1",
            "hedge primary 1",
            "1: error, transient after 0ns",
            "hedge: attempts_exhausted, winner None, 1 attempts, 0 skipped, delays 0ns, took 0ns",
            "1: error, transient after 0ns",
            "retry: attempts_exhausted, winner None, 1 attempts, 0 skipped, delays 0ns, took 0ns",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_grpc_call_has_its_status() {
    /// Keeps the gRPC statuses of attempts.
    #[derive(Default)]
    struct Statuses(Mutex<Vec<Option<u16>>>);
    impl Observer for Statuses {
        fn on_event(&self, _: &CallInfo, event: Event<'_>) {
            if let Event::AttemptEnded { outcome, .. } = event
                && let AttemptOutcome::Response { grpc_status, .. } = outcome
            {
                self.0.lock().unwrap().push(grpc_status);
            }
        }
    }
    let statuses = Arc::new(Statuses::default());
    let builder = RetryLayer::builder()
        .grpc()
        .idempotent_methods(["cards.Cards/List"]);
    let layer = builder.observer(statuses.clone()).build().unwrap();
    let attempts = Arc::new(AtomicU32::new(0));
    let service = service_fn(move |_: Request<Full<Bytes>>| {
        let mut response = Response::new(Full::<Bytes>::default());
        if attempts.fetch_add(1, Relaxed) == 0 {
            let unavailable = HeaderValue::from_static("14");
            response.headers_mut().insert("grpc-status", unavailable);
        }
        async { Ok::<_, BoxError>(response) }
    });
    let mut request = get();
    *request.uri_mut() = "http://cards.test/cards.Cards/List".parse().unwrap();
    layer.layer(service).oneshot(request).await.unwrap();
    assert_eq!(*statuses.0.lock().unwrap(), [Some(14), None]);
}

/// Keeps the facts about the request.
#[derive(Clone, Default)]
struct Facts {
    skips_request: bool,
    seen: Arc<Mutex<Vec<[Option<String>; 4]>>>,
    ids: Arc<Mutex<Vec<u64>>>,
}

impl Observer for Facts {
    fn on_event(&self, call: &CallInfo, event: Event<'_>) {
        self.ids.lock().unwrap().push(call.id());
        if let Event::CallEnded { .. } = event {
            let parts = [
                Some(&*call.name),
                call.method(),
                call.authority(),
                call.path(),
            ];
            let parts = parts.map(|part| part.map(str::to_owned));
            self.seen.lock().unwrap().push(parts);
        }
    }

    fn reads_request(&self) -> bool {
        !self.skips_request
    }
}

#[tokio::test(start_paused = true)]
async fn events_name_the_layer_and_the_request_if_the_observer_reads_it() {
    let steps: &[Step] = &[(5, Ok(200)), (5, Ok(200))];
    let reads = Facts::default();
    let skips = Facts {
        skips_request: true,
        ..Facts::default()
    };
    let service = retry(reads.clone()).build().unwrap().layer(backend(steps));
    let service = hedge(skips.clone()).build().unwrap().layer(service);
    for _ in 0..2 {
        service.clone().oneshot(get()).await.unwrap();
    }
    let own = |text: &str| Some(text.to_owned());
    let facts = [
        own("payments"),
        own("GET"),
        own("pay.test:8080"),
        own("/cards"),
    ];
    assert_eq!(*reads.seen.lock().unwrap(), [facts.clone(), facts]);
    let none = [own("payments"), None, None, None];
    assert_eq!(*skips.seen.lock().unwrap(), [none.clone(), none]);
    // All events of a call have its number.
    let ids = reads.ids.lock().unwrap();
    assert_eq!(ids.len(), 6);
    let is_one = |ids: &[u64]| ids.iter().all(|id| *id == ids[0]);
    assert!(
        is_one(&ids[..3]) && is_one(&ids[3..]) && ids[0] != ids[3],
        "{ids:?}"
    );
}

#[test]
fn an_unobserved_call_keeps_nothing_for_events() {
    use tower_attempt::Observe;
    assert_eq!(size_of::<<NoObserver as Observe>::Record>(), 0);
    assert_eq!(size_of::<NoObserver>(), 0);
}
