use std::{error::Error, time::Duration};

use super::Observer;
use crate::{
    Decided, Reason, Rejection,
    backend::{BackendError, CircuitOpen},
};

/// Counts what a limit decides with the `metrics` facade.
///
/// | metric | kind | labels |
/// |---|---|---|
/// | `ratelimit_requests_total` | counter | `outcome`: `allowed`, `rejected`, `shadowed`, `cancelled` |
/// | `ratelimit_rejections_total` | counter | `reason`: `quota`, `missing_key`, `backend`, `reduced_capacity`, `queue_full`, `too_long`; `policy`: each that rejected, else empty |
/// | `ratelimit_backend_failures_total` | counter | `kind`: `late`, `error`; `open`, if it was not asked |
/// | `ratelimit_backend_changes_total` | counter | `circuit`: `opened`, `closed` |
/// | `ratelimit_wait_seconds` | histogram | |
///
/// Rejections of a shadow are counted among the rejections, too. Keys are not labels: there are too many.
///
/// # Cost
///
/// One look-up in the recorder per request; a rejection takes one more per policy that rejects, and allocates its name.
///
/// ```
/// use tower_dist_ratelimit::{MetricsObserver, Policy, Quota, RateLimitLayer, backend::Memory};
///
/// let layer = RateLimitLayer::builder(Memory::default())
///     .limit(Policy::new("all", Quota::per_second(100)))
///     .observer(MetricsObserver)
///     .build()?;
/// # let _ = layer;
/// # Ok::<(), tower_dist_ratelimit::BuildError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct MetricsObserver;

fn ended(outcome: &'static str) {
    metrics::counter!("ratelimit_requests_total", "outcome" => outcome).increment(1);
}

fn changed(circuit: &'static str) {
    metrics::counter!("ratelimit_backend_changes_total", "circuit" => circuit).increment(1);
}

fn rejected(rejection: &Rejection<'_>) {
    let reason = match rejection.reason() {
        Reason::Quota => "quota",
        Reason::MissingKey => "missing_key",
        Reason::Misconfigured => "misconfigured",
        Reason::Backend => "backend",
        Reason::ReducedCapacity => "reduced_capacity",
        Reason::QueueFull => "queue_full",
        Reason::TooLong => "too_long",
    };
    let count = |policy: String| {
        let labels = [("reason", reason.to_owned()), ("policy", policy)];
        metrics::counter!("ratelimit_rejections_total", &labels).increment(1);
    };
    let mut violated = rejection.violated().peekable();
    if violated.peek().is_none() {
        count(String::new());
    }
    violated.map(str::to_owned).for_each(count);
}

impl Observer for MetricsObserver {
    fn allowed(&self, _: &Decided<'_>) {
        ended("allowed");
    }

    fn rejected(&self, rejection: &Rejection<'_>) {
        ended("rejected");
        rejected(rejection);
    }

    fn shadowed(&self, rejection: &Rejection<'_>) {
        ended("shadowed");
        rejected(rejection);
    }

    fn failed(&self, error: &BackendError) {
        let kind = match error.source() {
            _ if error.is_late() => "late",
            Some(cause) if cause.is::<CircuitOpen>() => "open",
            _ => "error",
        };
        metrics::counter!("ratelimit_backend_failures_total", "kind" => kind).increment(1);
    }

    fn circuit_opened(&self, _: &BackendError) {
        changed("opened");
    }

    fn circuit_closed(&self) {
        changed("closed");
    }

    fn waited(&self, waited: Duration) {
        metrics::histogram!("ratelimit_wait_seconds").record(waited);
    }

    fn cancelled(&self) {
        ended("cancelled");
    }
}
