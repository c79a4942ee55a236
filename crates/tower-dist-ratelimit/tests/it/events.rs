//! What is told to those who run the service: changes, and not every request.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use tower::Layer;
use tower_dist_ratelimit::{OnError, Policy, RateLimitLayer, backend::Memory, key};
use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
};

use crate::support::{Probe, Remote, from, get, send, slow};

/// Notes the levels of events.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Levels {
    fn seen(&self) -> Vec<Level> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tower_dist_ratelimit")
    }

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn missing_keys_are_warned_of_once_per_policy() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let mut service = RateLimitLayer::builder(Memory::default())
        .limit(Policy::new("each", slow(9)).by(key::header("key")))
        .build()
        .unwrap()
        .layer(Probe::default());
    send(&mut service, from("a")).await;
    assert!(levels.seen().is_empty());
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN]);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_told_of_once_and_once_more_when_it_is_back() {
    let levels = Levels::default();
    let _guard = tracing::subscriber::set_default(levels.clone());
    let remote = Remote::after(Duration::from_secs(1));
    let delay = remote.delay();
    let mut service = RateLimitLayer::builder(remote)
        .limit(Policy::new("all", slow(9)))
        .on_backend_error(OnError::Allow)
        .build()
        .unwrap()
        .layer(Probe::default());
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN]);
    *delay.lock().unwrap() = Duration::from_millis(1);
    for _ in 0..3 {
        send(&mut service, get()).await;
    }
    assert_eq!(levels.seen(), vec![Level::WARN, Level::INFO]);
}
