//! Counts over time.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Number of events in each second.
#[derive(Debug)]
pub(crate) struct PerSecond(Vec<AtomicU32>);

impl PerSecond {
    /// Covers the first `seconds` seconds; later events are not counted.
    pub(crate) fn new(seconds: u32) -> Self {
        Self((0..seconds).map(|_| AtomicU32::new(0)).collect())
    }

    pub(crate) fn count(&self, at: Duration) {
        let second = usize::try_from(at.as_secs()).ok();
        if let Some(count) = second.and_then(|second| self.0.get(second)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn counts(&self) -> Vec<f64> {
        let counts = self.0.iter().map(|count| count.load(Ordering::Relaxed));
        counts.map(f64::from).collect()
    }
}
