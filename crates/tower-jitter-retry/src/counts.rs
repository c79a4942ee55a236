use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::StopReason;

/// Length of the array of counters: more than the number of [`StopReason`]s.
const REASONS: usize = 16;

/// Counts of a retry layer since it was built, over all of its services.
///
/// Calls whose first attempt succeeded are not counted, to keep such calls cheap. Of calls that their callers dropped,
/// only the retries are counted. An observer also receives the events of calls whose first attempt succeeded and of
/// dropped calls. Each number is exact, but the numbers are not read at one instant.
///
/// ```
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_jitter_retry::{Backoff, RetryLayer, StopReason};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tower::BoxError> {
/// let layer = RetryLayer::builder().backoff(Backoff::none()).max_attempts(2).build()?;
/// let service = layer.layer(service_fn(|_: ()| async { Err::<(), _>("down") }));
/// service.oneshot(()).await.unwrap_err();
/// let counts = layer.handle().counts();
/// assert_eq!((counts.retries, counts.recovered), (1, 0));
/// assert_eq!(counts.stopped(StopReason::AttemptsExhausted), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RetryCounts {
    /// Retries that were sent.
    pub retries: u64,
    /// Calls that succeeded with a retry.
    pub recovered: u64,
    stopped: [u64; REASONS],
}

impl RetryCounts {
    /// Returns the number of calls that ended for `reason`. For [`StopReason::Success`], that is
    /// [`recovered`](Self::recovered). For [`StopReason::Cancelled`], it is always 0.
    #[must_use]
    pub fn stopped(&self, reason: StopReason) -> u64 {
        self.stopped.get(reason as usize).copied().unwrap_or(0)
    }
}

/// The atomic counters behind [`RetryCounts`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    retries: AtomicU64,
    stopped: [AtomicU64; REASONS],
}

impl Counters {
    pub(crate) fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub(crate) fn stop(&self, reason: StopReason) {
        if let Some(calls) = self.stopped.get(reason as usize) {
            calls.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> RetryCounts {
        let stopped = self.stopped.each_ref().map(|calls| calls.load(Relaxed));
        let mut counts = RetryCounts {
            retries: self.retries.load(Relaxed),
            recovered: 0,
            stopped,
        };
        counts.recovered = counts.stopped(StopReason::Success);
        counts
    }
}
