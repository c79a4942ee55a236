//! The events of the built-in observers.

use std::{
    fmt::{self, Write},
    sync::{Arc, Mutex},
    time::Duration,
};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use tower::Layer;
use tower_dist_ratelimit::{
    FailureMode, MetricsObserver, MissingKey, Observer, Policy, RateLimitLayer, TracingObserver,
    backend::{Backend, Memory},
    key,
};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};

use crate::support::{Broken, Mood, Probe, Scripted, from, get, send, slow};

/// Sends two requests of a key whose policy allows one, and one request without the key.
async fn requests(backend: impl Backend, observer: impl Observer, shadow: bool) {
    let keyed = Policy::new("each", slow(1)).by(key::header("key"));
    let builder = RateLimitLayer::builder(backend)
        .name("public")
        .limit(keyed.missing_key(MissingKey::Reject))
        .failure_mode(FailureMode::Open)
        .observer(observer);
    let builder = if shadow { builder.shadow() } else { builder };
    let mut service = builder.build().unwrap().layer(Probe::default());
    for request in [from("a"), from("a"), get()] {
        send(&mut service, request).await;
    }
}

/// Runs on a paused clock and on this thread, where recorders and subscribers are installed.
fn run(requests: impl Future) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(requests);
}

/// Recorded metrics, as text.
fn rows(snapshotter: &Snapshotter) -> Vec<String> {
    let snapshot = snapshotter.snapshot().into_vec();
    let mut rows: Vec<_> = snapshot
        .into_iter()
        .map(|(key, _, _, value)| {
            let labels = key.key().labels().map(metrics::Label::value);
            let labels = labels.collect::<Vec<_>>().join(",");
            let DebugValue::Counter(count) = value else {
                panic!("{value:?}")
            };
            format!("{}{{{labels}}} {count}", key.key().name())
        })
        .collect();
    rows.sort();
    rows
}

#[test]
fn metrics_count_outcomes_rejections_and_failures() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        run(async {
            requests(Memory::default(), MetricsObserver::new(), false).await;
            requests(Memory::default(), MetricsObserver::new(), true).await;
            requests(Broken, MetricsObserver::new(), false).await;
        });
    });
    let rows = rows(&snapshotter);
    assert_eq!(
        rows,
        [
            "ratelimit_backend_failures_total{public,error} 2",
            "ratelimit_rejections_total{public,missing_key,} 3",
            "ratelimit_rejections_total{public,quota,each} 2",
            "ratelimit_requests_total{public,allowed} 4",
            "ratelimit_requests_total{public,rejected} 3",
            "ratelimit_requests_total{public,shadowed} 2",
        ]
    );
}

/// Keeps each event as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        write!(self.0, " {}={value:?}", field.name()).unwrap();
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let mut text = Text(event.metadata().level().to_string());
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

#[test]
fn metrics_distinguish_late_failed_and_skipped_backend_requests() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        run(async {
            let store = Scripted::new(Mood::Silent);
            let layer = RateLimitLayer::builder(store.clone()).limit(Policy::new("all", slow(9)));
            let layer = layer.observer(MetricsObserver::new()).build().unwrap();
            let mut service = layer.layer(Probe::default());
            for requests in [2, 8] {
                for _ in 0..requests {
                    send(&mut service, get()).await;
                }
                store.is(Mood::Failing);
            }
            store.is(Mood::AtOnce);
            // The backend is remote, so an immediate answer is no evidence of its health.
            tokio::time::advance(Duration::from_millis(100)).await;
            send(&mut service, get()).await;
            store.is(Mood::After(Duration::from_millis(1)));
            send(&mut service, get()).await;
        });
    });
    let rows = rows(&snapshotter);
    assert_eq!(
        rows,
        [
            "ratelimit_backend_changes_total{,closed} 1",
            "ratelimit_backend_changes_total{,opened} 1",
            "ratelimit_backend_failures_total{,error} 3",
            "ratelimit_backend_failures_total{,late} 2",
            "ratelimit_backend_failures_total{,open} 5",
            "ratelimit_rejections_total{,reduced_capacity,all} 1",
            "ratelimit_requests_total{,allowed} 11",
            "ratelimit_requests_total{,rejected} 1",
        ]
    );
}

#[test]
fn tracing_logs_rejections_and_failures() {
    let events = Events::default();
    let subscriber = tracing_subscriber::registry().with(events.clone());
    tracing::subscriber::with_default(subscriber, || {
        run(async {
            requests(Memory::default(), TracingObserver, false).await;
            requests(Memory::default(), TracingObserver, true).await;
            requests(Broken, TracingObserver, false).await;
        });
    });
    let events = events.0.lock().unwrap();
    let failed = "DEBUG message=undecided name=\"public\" error=the rate limit's backend did not decide: out of order";
    assert_eq!(
        *events,
        [
            r#"DEBUG message=rejected name="public" reason=Quota violated=["each"] retry_after_ms=1000"#,
            "DEBUG message=rejected name=\"public\" reason=MissingKey violated=[]",
            r#"INFO message=would have been rejected name="public" reason=Quota violated=["each"] retry_after_ms=1000"#,
            "INFO message=would have been rejected name=\"public\" reason=MissingKey violated=[]",
            failed,
            failed,
            "DEBUG message=rejected name=\"public\" reason=MissingKey violated=[]",
        ]
    );
}
