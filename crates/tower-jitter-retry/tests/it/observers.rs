//! What the ready observers report of a call.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tower::{Layer, ServiceExt, service_fn};
use tower_jitter_retry::{
    Backoff, Budget, Jitter, MetricsObserver, Observer, RetryLayer, TracingObserver,
};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};

/// One call whose first `failures` attempts fail, with 100 ms before each retry.
async fn call<O: Observer + Clone>(observer: O, failures: u32, budget: Budget) {
    let layer = RetryLayer::builder()
        .backoff(Backoff::constant(Duration::from_millis(100)).jitter(Jitter::None))
        .budget(budget)
        .observer(observer)
        .build()
        .unwrap();
    let attempts = Arc::new(Mutex::new(0));
    let service = service_fn(move |(): ()| {
        let mut attempts = attempts.lock().unwrap();
        *attempts += 1;
        let outcome = if *attempts > failures {
            Ok(())
        } else {
            Err(())
        };
        async move { outcome }
    });
    let _ = layer.layer(service).oneshot(()).await;
}

/// Runs calls on a clock that stands still, on this thread, where recorders and subscribers are.
fn run(calls: impl Future) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(calls);
}

#[test]
fn metrics_count_attempts_ends_and_delays() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || {
        run(async {
            call(MetricsObserver, 0, Budget::unlimited()).await;
            call(MetricsObserver, 2, Budget::unlimited()).await;
            call(MetricsObserver, 9, Budget::unlimited()).await;
            call(MetricsObserver, 1, Budget::none()).await;
        });
    });
    let mut rows: Vec<_> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let label = key.key().labels().next().unwrap();
            let name = format!("{}{{{}}}", key.key().name(), label.value());
            match (key.kind(), value) {
                (MetricKind::Counter, DebugValue::Counter(count)) => (name, count, 0.0),
                (MetricKind::Histogram, DebugValue::Histogram(values)) => {
                    let sum = values.iter().map(|value| value.0).sum();
                    (name, values.len() as u64, sum)
                }
                other => panic!("{other:?}"),
            }
        })
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("retry_attempts_total{primary}", 4, 0.0),
        ("retry_attempts_total{retry}", 4, 0.0),
        ("retry_calls_total{attempts_exhausted}", 1, 0.0),
        ("retry_calls_total{budget_exhausted}", 1, 0.0),
        ("retry_calls_total{success}", 2, 0.0),
        ("retry_delay_seconds{backoff}", 4, 0.4),
    ];
    assert_eq!(
        rows,
        expected.map(|(name, count, sum)| (name.to_owned(), count, sum))
    );
}

/// Keeps each event as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0 += &format!(" {}={value:?}", field.name());
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut text = Text(format!("{} {}", metadata.target(), metadata.level()));
        event.record(&mut text);
        self.0.lock().unwrap().push(text.0);
    }
}

#[test]
fn tracing_tells_of_retries_and_of_giving_up() {
    let events = Events::default();
    let subscriber = tracing_subscriber::registry().with(events.clone());
    tracing::subscriber::with_default(subscriber, || {
        run(async {
            call(TracingObserver, 0, Budget::unlimited()).await;
            call(TracingObserver, 1, Budget::unlimited()).await;
            call(TracingObserver, 1, Budget::none()).await;
        });
    });
    let events = events.0.lock().unwrap();
    assert_eq!(
        *events,
        [
            "tower_jitter_retry DEBUG message=retrying attempt=1 delay_ms=100 source=Backoff",
            "tower_jitter_retry DEBUG message=succeeded after retries attempt=2",
            "tower_jitter_retry WARN message=gave up attempt=1 reason=BudgetExhausted",
        ]
    );
}
