use std::sync::{Arc, Mutex};

use tracing::{
    Event, Level, Metadata, Subscriber,
    span::{Attributes, Id, Record},
    subscriber::DefaultGuard,
};

/// The levels of the log lines that this thread writes.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Mutex<Vec<Level>>>);

impl Lines {
    /// Records lines until the guard is dropped.
    pub(super) fn listen() -> (Self, DefaultGuard) {
        let lines = Self::default();
        let guard = tracing::subscriber::set_default(lines.clone());
        (lines, guard)
    }

    pub(super) fn seen(&self) -> Vec<Level> {
        self.0.lock().unwrap().clone()
    }
}

impl Subscriber for Lines {
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
