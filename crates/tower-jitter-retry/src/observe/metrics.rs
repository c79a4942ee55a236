use std::time::Duration;

use tower_attempt::{Attempt, AttemptKind};

use super::{DelaySource, Observer, StopReason};

/// Counts what a retry layer does with the `metrics` facade.
///
/// | metric | kind | labels |
/// |---|---|---|
/// | `retry_attempts_total` | counter | `kind`: `primary`, `retry` |
/// | `retry_calls_total` | counter | `stop`: `success`, `fatal`, `attempts_exhausted`, `not_repeatable`, `hint_too_long`, `deadline_exceeded`, `budget_exhausted`, `not_ready`, `server_refused`, `nested`, `shadow`, `off`, `cancelled` |
/// | `retry_delay_seconds` | histogram | `source`: `backoff`, `custom`, `server`, `unprocessed` |
///
/// # Cost
///
/// Two look-ups in the recorder per call, more when it is repeated.
///
/// ```
/// use tower_jitter_retry::{MetricsObserver, RetryLayer};
///
/// let layer = RetryLayer::builder().observer(MetricsObserver).http().build()?;
/// # let _ = layer;
/// # Ok::<_, tower_jitter_retry::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsObserver;

impl Observer for MetricsObserver {
    fn attempt_started(&self, attempt: &Attempt) {
        let kind = match attempt.kind() {
            AttemptKind::Primary => "primary",
            _ => "retry",
        };
        metrics::counter!("retry_attempts_total", "kind" => kind).increment(1);
    }

    fn retry_scheduled(&self, _: &Attempt, delay: Duration, source: DelaySource) {
        let source = match source {
            DelaySource::Backoff => "backoff",
            DelaySource::Custom => "custom",
            DelaySource::Server => "server",
            DelaySource::Unprocessed => "unprocessed",
        };
        metrics::histogram!("retry_delay_seconds", "source" => source).record(delay);
    }

    fn stopped(&self, _: &Attempt, reason: StopReason) {
        ended(match reason {
            StopReason::Success => "success",
            StopReason::Fatal => "fatal",
            StopReason::AttemptsExhausted => "attempts_exhausted",
            StopReason::NotRepeatable => "not_repeatable",
            StopReason::HintTooLong => "hint_too_long",
            StopReason::DeadlineExceeded => "deadline_exceeded",
            StopReason::BudgetExhausted => "budget_exhausted",
            StopReason::NotReady => "not_ready",
            StopReason::ServerRefused => "server_refused",
            StopReason::Nested => "nested",
            StopReason::Shadow => "shadow",
            StopReason::Off => "off",
        });
    }

    fn cancelled(&self, _: &Attempt) {
        ended("cancelled");
    }
}

fn ended(stop: &'static str) {
    metrics::counter!("retry_calls_total", "stop" => stop).increment(1);
}
