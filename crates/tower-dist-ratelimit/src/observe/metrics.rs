use std::{
    error::Error,
    sync::{Arc, OnceLock},
};

use metrics::{Label, Unit, counter, describe_counter, describe_histogram, histogram};

use super::{Event, Observer};
use crate::{Reason, Rejection, backend::CircuitOpen};

/// Records events with the [`metrics`](https://docs.rs/metrics) facade.
///
/// | metric | type | labels | meaning |
/// |---|---|---|---|
/// | `ratelimit_requests_total` | counter | `name`, `outcome` | requests, by outcome |
/// | `ratelimit_rejections_total` | counter | `name`, `reason`, `policy` | rejections, real or shadowed: one per rejecting policy; one in total if no policy's quota caused the rejection |
/// | `ratelimit_backend_failures_total` | counter | `name`, `kind` | failures after which the [failure mode](crate::FailureMode) decided a request |
/// | `ratelimit_backend_changes_total` | counter | `name`, `circuit` | times that the circuit breaker opened or closed |
/// | `ratelimit_wait_seconds` | histogram | `name` | wait of a request in a `Throttle` or a leaky queue, in seconds |
///
/// | label | values |
/// |---|---|
/// | `name` | the name of the limit; empty by default |
/// | `outcome` | `allowed`, `rejected`, `shadowed`, `cancelled` |
/// | `reason` | `quota`, `missing_key`, `misconfigured`, `backend`, `reduced_capacity`, `queue_full`, `too_long` |
/// | `policy` | the name of the rejecting policy; empty if no policy's quota caused the rejection |
/// | `kind` | `late` (timeout of the backend or of a quota look-up), `error`, or `open` (the circuit breaker is open) |
/// | `circuit` | `opened`, `closed` |
///
/// Keys are not labels, because there are too many of them.
///
/// At the first event, the observer describes the metrics to the recorder. So install the recorder before the first
/// request.
///
/// # Cost
///
/// Each change of a counter or histogram takes a look-up in the recorder, and an allocation for the labels. The name of
/// a rejecting policy takes one more allocation.
///
/// ```
/// use std::convert::Infallible;
/// use bytes::Bytes;
/// use http::{Request, Response};
/// use http_body_util::Full;
/// use metrics_util::debugging::DebuggingRecorder;
/// use tower::{Layer, ServiceExt, service_fn};
/// use tower_dist_ratelimit::{MetricsObserver, Policy, Quota, RateLimitLayer, backend::Memory};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let recorder = DebuggingRecorder::new(); // in production: the recorder of an exporter
/// let _guard = metrics::set_default_local_recorder(&recorder);
/// let layer = RateLimitLayer::builder(Memory::default())
///     .name("public-api")
///     .limit(Policy::new("all", Quota::per_second(100)))
///     .observer(MetricsObserver::new())
///     .build()?;
///
/// let hello = service_fn(async |_: Request<()>| Ok::<_, Infallible>(Response::new(Full::<Bytes>::from("hello"))));
/// layer.layer(hello).oneshot(Request::new(())).await?;
/// let metrics = recorder.snapshotter().snapshot().into_vec();
/// assert_eq!(metrics[0].0.key().name(), "ratelimit_requests_total");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct MetricsObserver {
    described: Arc<OnceLock<()>>,
}

impl MetricsObserver {
    /// An observer that describes its metrics to the recorder at the first event.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }
}

fn describe() {
    let counters = [
        ("ratelimit_requests_total", "Requests with an outcome."),
        (
            "ratelimit_rejections_total",
            "Rejections, real or shadowed, per rejecting policy.",
        ),
        (
            "ratelimit_backend_failures_total",
            "Requests that the backend did not decide.",
        ),
        (
            "ratelimit_backend_changes_total",
            "Changes of the circuit breaker.",
        ),
    ];
    for (name, help) in counters {
        describe_counter!(name, Unit::Count, help);
    }
    let help = "Time that requests wait for their turn.";
    describe_histogram!("ratelimit_wait_seconds", Unit::Seconds, help);
}

fn count(metric: &'static str, name: &Arc<str>, label: &'static str, value: &'static str) {
    let name = Label::new("name", Arc::clone(name));
    counter!(metric, vec![name, Label::new(label, value)]).increment(1);
}

/// Counts a rejected request, and each policy that rejected it.
fn count_rejection(name: &Arc<str>, outcome: &'static str, rejection: &Rejection<'_>) {
    count("ratelimit_requests_total", name, "outcome", outcome);
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
        let labels = vec![
            Label::new("name", Arc::clone(name)),
            Label::new("reason", reason),
            Label::new("policy", policy),
        ];
        counter!("ratelimit_rejections_total", labels).increment(1);
    };
    let mut violated = rejection.violated().peekable();
    if violated.peek().is_none() {
        count(String::new());
    }
    violated.map(str::to_owned).for_each(count);
}

impl Observer for MetricsObserver {
    fn on_event(&self, name: &Arc<str>, event: Event<'_>) {
        self.described.get_or_init(describe);
        let ended = |outcome| count("ratelimit_requests_total", name, "outcome", outcome);
        let changed = |to| count("ratelimit_backend_changes_total", name, "circuit", to);
        match event {
            Event::Allowed(_) => ended("allowed"),
            Event::Rejected(rejection) => count_rejection(name, "rejected", &rejection),
            Event::Shadowed(rejection) => count_rejection(name, "shadowed", &rejection),
            Event::BackendFailed(error) => {
                let kind = match error.source() {
                    _ if error.is_timeout() => "late",
                    Some(cause) if cause.is::<CircuitOpen>() => "open",
                    _ => "error",
                };
                count("ratelimit_backend_failures_total", name, "kind", kind);
            }
            Event::CircuitOpened(_) => changed("opened"),
            Event::CircuitClosed => changed("closed"),
            Event::Waited(waited) => {
                let labels = vec![Label::new("name", Arc::clone(name))];
                histogram!("ratelimit_wait_seconds", labels).record(waited);
            }
            Event::Cancelled => ended("cancelled"),
        }
    }
}
