//! The facts that events carry, with exact times.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response};
use http_body_util::Full;
use tokio::time::timeout;
use tower::{BoxError, Layer, ServiceExt, service_fn};
use tower_hedge_latency::{
    AttemptEnded, AttemptOutcome, AttemptScope, AttemptStarted, CallEnded, HedgeLayer,
    HedgeSkipped, NoObserver, Observer, RetryScheduled,
};
use tower_jitter_retry::{Budget, Mode, RetryLayer};

use crate::{Step, backend, get, hedge, ms, retry};

/// Writes each event as a line.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

impl Observer for Log {
    fn attempt_started(&self, event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        let (layer, attempt) = (event.call.layer().as_str(), event.attempt);
        self.add(format!(
            "{layer} {} {}",
            attempt.kind().as_str(),
            attempt.number()
        ));
        None
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        let outcome = match event.outcome {
            AttemptOutcome::Response {
                http_status: Some(status),
                ..
            } => status.to_string(),
            AttemptOutcome::Response { .. } => "response".to_owned(),
            AttemptOutcome::Error(error) => {
                error.map_or("error".to_owned(), |error| format!("error '{error}'"))
            }
            AttemptOutcome::TimedOut(elapsed) => format!("'{elapsed}'"),
            AttemptOutcome::Cancelled => "no outcome".to_owned(),
            other => format!("{other:?}"),
        };
        let (number, result) = (event.attempt.number(), event.result());
        self.add(format!(
            "{number}: {outcome}, {result} after {:?}",
            event.elapsed
        ));
    }

    fn retry_scheduled(&self, event: &RetryScheduled<'_>) {
        let (delay, source) = (event.delay, event.source.as_str());
        let shadow = if event.is_shadow { ", shadow" } else { "" };
        let number = event.attempt.number();
        self.add(format!("{number}: wait {delay:?}, {source}{shadow}"));
    }

    fn hedge_skipped(&self, event: &HedgeSkipped<'_>) {
        let (number, reason) = (event.attempt.number(), event.reason.as_str());
        self.add(format!("{number}: skipped, {reason}"));
    }

    fn call_ended(&self, event: &CallEnded<'_>) {
        let winner = event.winner.map(|winner| winner.number());
        self.add(format!(
            "{}: {}, winner {winner:?}, {} attempts, {} skipped, waited {:?}, took {:?}",
            event.call.layer().as_str(),
            event.reason.as_str(),
            event.attempts,
            event.skipped,
            event.waited,
            event.elapsed
        ));
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
            "retry: success, winner Some(3), 3 attempts, 0 skipped, waited 200ms, took 218ms",
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
        "retry: attempts_exhausted, winner None, 2 attempts, 0 skipped, waited 100ms, took 110ms";
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
            "retry: fatal, winner None, 1 attempts, 0 skipped, waited 0ns, took 5ms",
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
            "1: 'no answer to an attempt within 20ms', timeout after 20ms",
            "1: wait 100ms, backoff",
            "retry retry 2",
            "2: 'the call's time limit ran out after 130ms', timeout after 10ms",
            "retry: deadline_exceeded, winner None, 2 attempts, 0 skipped, waited 100ms, took 130ms",
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
            "retry: cancelled, winner None, 1 attempts, 0 skipped, waited 40ms, took 45ms",
            "retry primary 1",
            "1: 503, transient after 5ms",
            "1: wait 100ms, backoff",
            "retry retry 2",
            "2: no outcome, cancelled after 20ms",
            "retry: cancelled, winner None, 2 attempts, 0 skipped, waited 100ms, took 125ms",
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
            "retry: shadow, winner None, 1 attempts, 0 skipped, waited 0ns, took 5ms",
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
            "hedge: success, winner Some(3), 3 attempts, 0 skipped, waited 0ns, took 25ms",
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
            "hedge: attempts_exhausted, winner None, 1 attempts, 1 skipped, waited 0ns, took 15ms",
        ),
        (
            &[(5, Ok(501))],
            "hedge: fatal, winner None, 1 attempts, 0 skipped, waited 0ns, took 5ms",
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
            "hedge: cancelled, winner None, 1 attempts, 1 skipped, waited 0ns, took 12ms",
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
            "hedge: attempts_exhausted, winner None, 1 attempts, 0 skipped, waited 0ns, took 0ns",
            "1: error, transient after 0ns",
            "retry: attempts_exhausted, winner None, 1 attempts, 0 skipped, waited 0ns, took 0ns",
        ]
    );
}

/// Counts the entries into attempts.
#[derive(Clone, Default)]
struct Entries(Arc<AtomicU32>);

impl AttemptScope for Entries {
    fn enter(&self, attempt: &mut dyn FnMut()) {
        self.0.fetch_add(1, Relaxed);
        attempt();
    }
}

impl Observer for Entries {
    fn attempt_started(&self, _: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        Some(Box::new(self.clone()))
    }
}

/// Never runs the attempt.
struct Idle;

impl AttemptScope for Idle {
    fn enter(&self, _: &mut dyn FnMut()) {}
}

impl Observer for Idle {
    fn attempt_started(&self, _: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        Some(Box::new(Idle))
    }
}

#[tokio::test(start_paused = true)]
async fn a_pair_of_observers_receives_each_event_twice_and_enters_both_scopes() {
    let (log, entries) = (Log::default(), Entries::default());
    let shared: Arc<dyn Observer> = Arc::new((log.clone(), log.clone()));
    let observer = ((entries.clone(), shared), entries.clone());
    let steps: &[Step] = &[(5, Ok(503)), (5, Ok(200))];
    let service = retry(observer).build().unwrap().layer(backend(steps));
    service.oneshot(get()).await.unwrap();
    let lines = log.take();
    assert_eq!(lines.len(), 12);
    assert!(lines.chunks(2).all(|pair| pair[0] == pair[1]), "{lines:?}");
    // Two attempts, each with the call of the service and two polls.
    assert_eq!(entries.0.load(Relaxed), 2 * 2 * 3);
}

#[tokio::test(start_paused = true)]
async fn an_attempt_runs_even_if_its_scope_does_not_run_it() {
    let steps: &[Step] = &[(5, Ok(200))];
    let service = hedge(Idle).build().unwrap().layer(backend(steps));
    assert_eq!(service.oneshot(get()).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn the_outcome_of_a_grpc_call_has_its_status() {
    /// Keeps the gRPC statuses of attempts.
    #[derive(Default)]
    struct Statuses(Mutex<Vec<Option<u16>>>);
    impl Observer for Statuses {
        fn attempt_ended(&self, event: &AttemptEnded<'_>) {
            if let AttemptOutcome::Response { grpc_status, .. } = event.outcome {
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
    seen: Arc<Mutex<Vec<[Option<String>; 5]>>>,
    ids: Arc<Mutex<Vec<u64>>>,
}

impl Observer for Facts {
    fn reads_request(&self) -> bool {
        !self.skips_request
    }

    fn attempt_started(&self, event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        self.ids.lock().unwrap().push(event.call.id());
        None
    }

    fn call_ended(&self, event: &CallEnded<'_>) {
        let call = event.call;
        self.ids.lock().unwrap().push(call.id());
        let own = |text: Option<&str>| text.map(str::to_owned);
        self.seen.lock().unwrap().push([
            Some(call.name().to_owned()),
            own(call.method()),
            own(call.authority()),
            own(call.path()),
            call.host()
                .zip(call.port())
                .map(|(host, port)| format!("{host} {port}")),
        ]);
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
        own("pay.test 8080"),
    ];
    assert_eq!(*reads.seen.lock().unwrap(), [facts.clone(), facts]);
    let none = [own("payments"), None, None, None, None];
    assert_eq!(*skips.seen.lock().unwrap(), [none.clone(), none]);
    // The start and the end of a call have its number.
    let ids = reads.ids.lock().unwrap();
    assert!(
        matches!(ids[..], [a, b, c, d] if a == b && c == d && a != c),
        "{ids:?}"
    );
}

#[test]
fn an_unobserved_call_keeps_nothing_for_events() {
    use tower_attempt::Observe;
    assert_eq!(size_of::<<NoObserver as Observe>::Record>(), 0);
    assert_eq!(size_of::<NoObserver>(), 0);
}
