use std::time::Duration;

use tower_attempt::Attempt;

use super::{DelaySource, Observer, StopReason};

/// Writes what a retry layer does to `tracing`.
///
/// Target `tower_jitter_retry`; a call whose first attempt succeeds writes nothing.
///
/// | event | level | fields |
/// |---|---|---|
/// | `retrying` | DEBUG | `attempt` that failed, `delay_ms`, `source` |
/// | `succeeded after retries` | DEBUG | `attempt` |
/// | `gave up` | WARN | `attempt`, `reason` |
/// | `would retry` | DEBUG | the same, in [shadow mode](crate::Mode::Shadow) |
/// | `cancelled` | DEBUG | `attempt` that was out or failed last |
///
/// `gave up` is for failures that would have been repeated; one that no repeat would mend writes
/// nothing.
///
/// ```
/// use tower_jitter_retry::{RetryLayer, TracingObserver};
///
/// let layer = RetryLayer::builder().observer(TracingObserver).http().build()?;
/// # let _ = layer;
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

const TARGET: &str = "tower_jitter_retry";

impl Observer for TracingObserver {
    fn retry_scheduled(&self, attempt: &Attempt, delay: Duration, source: DelaySource) {
        let attempt = attempt.number();
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(target: TARGET, attempt, delay_ms, ?source, "retrying");
    }

    fn retry_shadowed(&self, attempt: &Attempt, delay: Duration, source: DelaySource) {
        let attempt = attempt.number();
        let delay_ms = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
        tracing::debug!(target: TARGET, attempt, delay_ms, ?source, "would retry");
    }

    fn stopped(&self, attempt: &Attempt, reason: StopReason) {
        let attempt = attempt.number();
        match reason {
            StopReason::Success if attempt > 1 => {
                tracing::debug!(target: TARGET, attempt, "succeeded after retries");
            }
            StopReason::Success
            | StopReason::Fatal
            | StopReason::Nested
            | StopReason::Shadow
            | StopReason::Off => {}
            reason => tracing::warn!(target: TARGET, attempt, ?reason, "gave up"),
        }
    }

    fn cancelled(&self, attempt: &Attempt) {
        tracing::debug!(target: TARGET, attempt = attempt.number(), "cancelled");
    }
}
