//! Log lines, and spans with their parents and fields.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tokio::time::timeout;
use tower::{Layer, ServiceExt};
use tower_hedge_latency::TracingObserver;
use tower_jitter_retry::Budget;
use tracing::field::{Field, Visit};
use tracing::instrument::WithSubscriber;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

use crate::{Step, backend, get, hedge, ms, retry, run};

/// A span with the names of its ancestors, from the root.
#[derive(Clone, Debug, Default)]
struct Seen {
    path: String,
    fields: BTreeMap<&'static str, String>,
}

/// Keeps log lines and spans.
#[derive(Clone, Default)]
struct Capture {
    lines: Arc<Mutex<Vec<String>>>,
    spans: Arc<Mutex<Vec<Seen>>>,
}

/// The place of a span in the list.
struct Place(usize);

struct Fields<'a>(&'a mut BTreeMap<&'static str, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let mut spans = self.spans.lock().unwrap();
        let path = match span.parent() {
            Some(parent) => {
                let place = parent.extensions().get::<Place>().unwrap().0;
                format!("{} > {place} {}", spans[place].path, span.name())
            }
            None => span.name().to_owned(),
        };
        let mut fields = BTreeMap::new();
        attributes.record(&mut Fields(&mut fields));
        span.extensions_mut().insert(Place(spans.len()));
        spans.push(Seen { path, fields });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        let place = span.extensions().get::<Place>().unwrap().0;
        let spans = &mut self.spans.lock().unwrap();
        values.record(&mut Fields(&mut spans[place].fields));
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let message = fields.remove("message").unwrap();
        let metadata = event.metadata();
        let mut line = format!("{} {message}:", metadata.level());
        if metadata.target() != "tower_attempt"
            && let Some(span) = context.lookup_current()
        {
            let place = span.extensions().get::<Place>().unwrap().0;
            write!(line, " in {place}").unwrap();
        }
        for (name, value) in fields {
            write!(line, " {name}={value}").unwrap();
        }
        self.lines.lock().unwrap().push(line);
    }
}

/// The log lines and spans of some calls.
fn capture(calls: impl Future) -> (Vec<String>, Vec<Seen>) {
    let capture = Capture::default();
    let subscriber = tracing_subscriber::registry().with(capture.clone());
    run(calls.with_subscriber(subscriber));
    let lines = std::mem::take(&mut *capture.lines.lock().unwrap());
    let spans = std::mem::take(&mut *capture.spans.lock().unwrap());
    (lines, spans)
}

/// The lines of the layers without the name, the address, and the call's number, which has to be the same on all.
fn of_one_call(mut lines: Vec<String>) -> Vec<String> {
    lines.retain(|line| !line.starts_with("INFO"));
    let number = |line: &String| {
        let (_, rest) = line.split_once(" call=").unwrap();
        let (number, _) = rest.split_once(' ').unwrap();
        format!(" call={number}")
    };
    let first = lines.first().map(number);
    lines
        .into_iter()
        .map(|line| {
            assert_eq!(Some(number(&line)), first);
            let line = line.replace(&number(&line), "");
            let unnamed = line.replace(" name=payments", "");
            let line = unnamed.replace(" server.address=pay.test", "");
            assert_ne!(line, unnamed);
            line
        })
        .collect()
}

#[test]
fn a_quiet_call_writes_nothing() {
    let steps: &[Step] = &[(5, Ok(200)), (5, Ok(200))];
    let (lines, spans) = capture(async {
        let observer = TracingObserver::new();
        let service = hedge(observer).build().unwrap().layer(backend(steps));
        let service = retry(observer).build().unwrap().layer(service);
        service.oneshot(get()).await.unwrap();
    });
    assert_eq!(lines, ["INFO woken:"]);
    assert_eq!(spans.len(), 1, "the backend's");
}

#[test]
fn the_log_lines_of_a_retried_call_name_the_failure_and_the_delay() {
    let steps: &[Step] = &[(5, Ok(503)), (5, Err("reset")), (5, Ok(200))];
    let (lines, _) = capture(async {
        let service = retry(TracingObserver::new()).build().unwrap();
        service.layer(backend(steps)).oneshot(get()).await.unwrap();
    });
    assert_eq!(
        of_one_call(lines),
        [
            "DEBUG attempt failed: attempt=1 elapsed_ms=5 http.response.status_code=503 layer=retry outcome=transient",
            "DEBUG retrying: attempt=1 delay_ms=100 layer=retry source=backoff",
            "DEBUG attempt failed: attempt=2 elapsed_ms=5 error=reset layer=retry outcome=transient",
            "DEBUG retrying: attempt=2 delay_ms=100 layer=retry source=backoff",
            "DEBUG call ended: attempts=3 elapsed_ms=215 layer=retry reason=success winner=3",
        ]
    );
}

#[test]
fn a_retry_layer_that_gives_up_warns() {
    let steps: &[Step] = &[(5, Ok(503))];
    let (lines, _) = capture(async {
        let poor = Budget::ratio(0.0).burst(1).initial(0);
        let layer = retry(TracingObserver::new()).budget(poor).build().unwrap();
        layer.layer(backend(steps)).oneshot(get()).await.unwrap();
    });
    let line = "WARN gave up: attempts=1 elapsed_ms=5 layer=retry reason=budget_exhausted";
    assert_eq!(of_one_call(lines)[1..], [line]);
}

#[test]
fn the_lines_of_a_hedged_call_name_the_winner() {
    let steps: &[Step] = &[(90, Ok(200)), (5, Err("reset")), (5, Ok(200))];
    let (lines, spans) = capture(async {
        let layer = hedge(TracingObserver::new()).build().unwrap();
        layer.layer(backend(steps)).oneshot(get()).await.unwrap();
    });
    assert_eq!(
        of_one_call(lines),
        [
            "DEBUG hedging: attempt=2 layer=hedge",
            "DEBUG attempt failed: attempt=2 elapsed_ms=5 error=reset layer=hedge outcome=transient",
            "DEBUG hedging: attempt=3 layer=hedge",
            "DEBUG call ended: attempts=3 elapsed_ms=25 layer=hedge reason=success winner=3",
        ]
    );
    assert!(spans.iter().all(|span| span.path == "backend"));
}

#[test]
fn the_log_names_a_dropped_call_and_the_reason_of_a_skipped_hedge() {
    let steps: &[Step] = &[(90, Ok(200))];
    let (lines, _) = capture(async {
        let poor = Budget::ratio(0.0).burst(1).initial(0);
        let layer = hedge(TracingObserver::new()).budget(poor).build().unwrap();
        let call = layer.layer(backend(steps)).oneshot(get());
        timeout(ms(15), call).await.unwrap_err();
    });
    assert_eq!(
        of_one_call(lines),
        [
            "DEBUG hedge skipped: attempt=2 layer=hedge reason=denied",
            "DEBUG call ended: attempts=1 elapsed_ms=15 layer=hedge reason=cancelled",
        ]
    );
}

#[test]
fn each_attempt_has_a_span_that_is_the_parent_of_the_inner_spans() {
    let steps: &[Step] = &[(90, Ok(503)), (5, Ok(503)), (12, Ok(200)), (12, Ok(200))];
    let (lines, spans) = capture(async {
        let observer = TracingObserver::new().spans();
        let inner = hedge(observer).max_hedges(1).build().unwrap();
        let service = inner.layer(backend(steps));
        let service = retry(observer).build().unwrap().layer(service);
        let caller = tracing::info_span!("caller");
        let call = tracing::Instrument::instrument(service.oneshot(get()), caller);
        call.await.unwrap();
    });
    let paths: Vec<_> = spans.iter().map(|span| span.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "caller",
            "caller > 0 attempt", // the first attempt of the retry layer
            "caller > 0 attempt > 1 attempt",
            "caller > 0 attempt > 1 attempt > 2 backend",
            "caller > 0 attempt > 1 attempt", // its hedge, concurrently
            "caller > 0 attempt > 1 attempt > 4 backend",
            "caller > 0 attempt", // the retry
            "caller > 0 attempt > 6 attempt",
            "caller > 0 attempt > 6 attempt > 7 backend",
            "caller > 0 attempt > 6 attempt",
            "caller > 0 attempt > 6 attempt > 9 backend",
        ]
    );
    // Each attempt is polled in its own span.
    let woken: Vec<_> = lines
        .iter()
        .filter(|line| line.starts_with("INFO"))
        .collect();
    assert_eq!(
        woken,
        ["INFO woken: in 4", "INFO woken: in 2", "INFO woken: in 7"]
    );
}

#[test]
fn the_fields_of_a_span_are_those_of_open_telemetry() {
    let steps: &[Step] = &[(5, Ok(503)), (90, Ok(200)), (5, Err("reset")), (5, Ok(200))];
    let (_, spans) = capture(async {
        let observer = TracingObserver::new().spans();
        let layer = retry(observer).attempt_timeout(ms(50)).max_attempts(4);
        let service = layer.build().unwrap().layer(backend(steps));
        service.oneshot(get()).await.unwrap();
    });
    let attempts: Vec<_> = spans.iter().filter(|span| span.path == "attempt").collect();
    let mut call = None;
    let own: Vec<_> = attempts
        .iter()
        .map(|span| {
            let mut fields = span.fields.clone();
            let common = [
                ("otel.name", "GET"),
                ("otel.kind", "client"),
                ("layer", "retry"),
                ("name", "payments"),
                ("http.request.method", "GET"),
                ("server.address", "pay.test"),
                ("server.port", "8080"),
            ];
            for (name, value) in common {
                assert_eq!(fields.remove(name).as_deref(), Some(value), "{name}");
            }
            let id = fields.remove("call").unwrap();
            assert_eq!(*call.get_or_insert(id.clone()), id);
            let fields = fields.iter().map(|(name, value)| format!("{name}={value}"));
            fields.collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(
        own,
        [
            "error.type=503 http.response.status_code=503 kind=primary otel.status_code=ERROR outcome=transient",
            "error.type=timeout http.request.resend_count=1 kind=retry otel.status_code=ERROR outcome=timeout",
            "error.type=_OTHER http.request.resend_count=2 kind=retry otel.status_code=ERROR outcome=transient",
            "http.request.resend_count=3 http.response.status_code=200 kind=retry outcome=success",
        ]
    );
}
