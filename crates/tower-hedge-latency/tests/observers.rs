//! What the ready observers report of a call.
#![cfg(all(feature = "metrics", feature = "tracing"))]
#![expect(clippy::unwrap_used, reason = "a failed setup fails the test")]

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use metrics_util::debugging::{DebugValue, DebuggingRecorder};
use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt, service_fn};
use tower_hedge_latency::{Budget, HedgeLayer, MetricsObserver, Observer, TracingObserver};
use tracing::field::{Field, Visit};
use tracing_subscriber::layer::{Context, SubscriberExt};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[derive(Debug)]
struct Failed;

/// One call whose attempts take so many milliseconds, with hedges after 10 and 20 ms. An attempt of negative
/// time fails.
async fn call<O: Observer + Clone>(observer: O, millis: &'static [i64], budget: Budget) {
    let layer = HedgeLayer::builder()
        .fixed(ms(10))
        .max_hedges(2)
        .budget(budget)
        .observer(observer)
        .build()
        .unwrap();
    let attempts = Arc::new(Mutex::new(millis.iter()));
    let service = service_fn(move |(): ()| {
        let millis = *attempts.lock().unwrap().next().unwrap();
        async move {
            sleep(ms(millis.unsigned_abs())).await;
            if millis < 0 { Err(Failed) } else { Ok(()) }
        }
    });
    let _ = timeout(ms(50), layer.layer(service).oneshot(())).await;
}

/// In time; won by the third attempt; denied; cancelled; failed before and after a hedge.
async fn calls<O: Observer + Clone>(observer: O) {
    call(observer.clone(), &[5], Budget::unlimited()).await;
    call(observer.clone(), &[90, 90, 5], Budget::unlimited()).await;
    call(observer.clone(), &[15], Budget::none()).await;
    call(observer.clone(), &[90, 90, 90], Budget::unlimited()).await;
    call(observer.clone(), &[-5], Budget::unlimited()).await;
    call(observer.clone(), &[-15, -15, -15], Budget::unlimited()).await;
}

/// Runs calls on a clock that stands still, on this thread, where recorders and subscribers are.
fn run(calls: impl Future) {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_time().start_paused(true).build().unwrap();
    runtime.block_on(calls);
}

#[test]
fn metrics_count_attempts_ends_and_hedges_that_are_not_sent() {
    let recorder = DebuggingRecorder::new();
    let snapshotter = recorder.snapshotter();
    metrics::with_local_recorder(&recorder, || run(calls(MetricsObserver)));
    let counts: BTreeMap<_, _> = snapshotter
        .snapshot()
        .into_vec()
        .into_iter()
        .map(|(key, _, _, value)| {
            let label = key.key().labels().next().unwrap();
            let name = format!("{}{{{}}}", key.key().name(), label.value());
            match value {
                DebugValue::Counter(count) => (name, count),
                other => panic!("{other:?}"),
            }
        })
        .collect();
    let expected = [
        ("hedge_attempts_total{hedge}", 6),
        ("hedge_attempts_total{primary}", 6),
        ("hedge_calls_total{cancelled}", 1),
        ("hedge_calls_total{hedge}", 1),
        ("hedge_calls_total{none}", 2),
        ("hedge_calls_total{primary}", 2),
        ("hedge_skipped_total{denied}", 1),
    ];
    assert_eq!(
        counts,
        expected
            .map(|(name, count)| (name.to_owned(), count))
            .into()
    );
}

/// Keeps each event as text.
#[derive(Clone, Default)]
struct Events(Arc<Mutex<Vec<String>>>);

struct Text {
    text: String,
    call: Option<u64>,
}

impl Visit for Text {
    fn record_u64(&mut self, field: &Field, value: u64) {
        match field.name() {
            "call" => self.call = Some(value),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text += &format!(" {}={value:?}", field.name());
    }
}

impl<S: tracing::Subscriber> tracing_subscriber::Layer<S> for Events {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        let metadata = event.metadata();
        let mut text = Text {
            text: format!("{} {}", metadata.target(), metadata.level()),
            call: None,
        };
        event.record(&mut text);
        let mut events = self.0.lock().unwrap();
        // Numbers go on from call to call: what counts is which events have the same.
        let call = text.call.unwrap();
        events.push(format!("{call}|{}", text.text));
    }
}

#[test]
fn tracing_links_the_attempts_of_a_call() {
    let events = Events::default();
    let subscriber = tracing_subscriber::registry().with(events.clone());
    tracing::subscriber::with_default(subscriber, || run(calls(TracingObserver::default())));
    let events = events.0.lock().unwrap();
    let mut calls: Vec<(&str, Vec<&str>)> = Vec::new();
    for event in events.iter() {
        let (call, text) = event.split_once('|').unwrap();
        let text = text.strip_prefix("tower_hedge_latency DEBUG ").unwrap();
        match calls.last_mut() {
            Some((last, texts)) if *last == call => texts.push(text),
            _ => calls.push((call, vec![text])),
        }
    }
    let texts: Vec<_> = calls.into_iter().map(|(_, texts)| texts).collect();
    assert_eq!(
        texts,
        [
            vec![
                "message=hedging attempt=2",
                "message=hedging attempt=3",
                "message=won attempt=3",
            ],
            vec![
                "message=hedge skipped attempt=2 reason=Denied",
                "message=won attempt=1"
            ],
            vec![
                "message=hedging attempt=2",
                "message=hedging attempt=3",
                "message=cancelled"
            ],
            vec![
                "message=hedging attempt=2",
                "message=attempt failed attempt=1",
                "message=hedging attempt=3",
                "message=attempt failed attempt=2",
                "message=attempt failed attempt=3",
                "message=no attempt succeeded",
            ],
        ]
    );
}
