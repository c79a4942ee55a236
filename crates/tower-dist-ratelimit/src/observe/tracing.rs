use std::time::Duration;

use super::Observer;
use crate::{Rejection, backend::BackendError};

/// Writes what a limit decides to `tracing`.
///
/// Target `tower_dist_ratelimit`; requests that pass write nothing.
///
/// | event | level | fields |
/// |---|---|---|
/// | `rejected` | DEBUG | `reason`, `violated` policies, `retry_after_ms` unless never or unknown |
/// | `would have been rejected` | INFO | the same, from a shadow |
/// | `undecided` | DEBUG | `error` of the store |
/// | `waited` | DEBUG | `waited_ms` for a turn |
/// | `cancelled` | DEBUG | |
///
/// Rejections are DEBUG, because who attacks would otherwise write your logs.
///
/// ```
/// use tower_dist_ratelimit::{Policy, Quota, RateLimitLayer, TracingObserver, backend::Memory};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("all", Quota::per_second(100)))
///     .observer(TracingObserver)
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TracingObserver;

const TARGET: &str = "tower_dist_ratelimit";

/// Rounded up, as waits are.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

fn violated(rejection: &Rejection<'_>) -> Vec<String> {
    rejection.violated().map(str::to_owned).collect()
}

impl Observer for TracingObserver {
    fn rejected(&self, rejection: &Rejection<'_>) {
        tracing::debug!(
            target: TARGET,
            reason = ?rejection.reason(),
            violated = ?violated(rejection),
            retry_after_ms = rejection.retry_after().map(millis),
            "rejected"
        );
    }

    fn shadowed(&self, rejection: &Rejection<'_>) {
        tracing::info!(
            target: TARGET,
            reason = ?rejection.reason(),
            violated = ?violated(rejection),
            retry_after_ms = rejection.retry_after().map(millis),
            "would have been rejected"
        );
    }

    fn failed(&self, error: &BackendError) {
        tracing::debug!(target: TARGET, %error, "undecided");
    }

    fn waited(&self, waited: Duration) {
        tracing::debug!(target: TARGET, waited_ms = millis(waited), "waited");
    }

    fn cancelled(&self) {
        tracing::debug!(target: TARGET, "cancelled");
    }
}
