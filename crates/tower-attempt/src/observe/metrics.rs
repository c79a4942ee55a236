use std::sync::{Arc, OnceLock};

use metrics::{Label, Unit, counter, describe_counter, describe_histogram, histogram};

use super::{CallInfo, Event, LayerKind, Observer};

/// The names of a layer's counter of attempts, histogram of attempt durations and histogram of call durations.
const RETRY: [&str; 3] = [
    "retry_attempts_total",
    "retry_attempt_duration_seconds",
    "retry_call_duration_seconds",
];
const HEDGE: [&str; 3] = [
    "hedge_attempts_total",
    "hedge_attempt_duration_seconds",
    "hedge_call_duration_seconds",
];

/// Records events with the [`metrics`](https://docs.rs/metrics) facade.
///
/// | metric | type | labels | meaning |
/// |---|---|---|---|
/// | `retry_attempts_total` | counter | `name`, `kind` | attempts that a retry layer sent |
/// | `retry_attempt_duration_seconds` | histogram | `name`, `kind`, `outcome` | time from sending an attempt to its end: response head, error, timeout or cancellation |
/// | `retry_delay_seconds` | histogram | `name`, `source` | delay before a retry |
/// | `retry_call_duration_seconds` | histogram | `name`, `reason`, `winner` | time of a call with its retries and delays |
/// | `hedge_attempts_total` | counter | `name`, `kind` | attempts that a hedge layer sent |
/// | `hedge_attempt_duration_seconds` | histogram | `name`, `kind`, `outcome` | time from sending an attempt to its end: response head, error, timeout or cancellation |
/// | `hedge_skipped_total` | counter | `name`, `reason` | hedges that were due and not sent |
/// | `hedge_call_duration_seconds` | histogram | `name`, `reason`, `winner` | time of a call with its hedges |
///
/// The `_count` of a call duration is the number of calls.
///
/// | label | values |
/// |---|---|
/// | `name` | the layer's name; empty by default |
/// | `destination` | the authority of the request's URI; only with [`with_destination`](Self::with_destination) |
/// | `kind` | `primary`, `retry`, `hedge` |
/// | `outcome` | the [classification](crate::AttemptOutcome::label), such as `success`, `transient`, `cancelled` |
/// | `source` | a [`DelaySource`](crate::DelaySource), such as `backoff` or `server` |
/// | `reason` of a call | a [`StopReason`](crate::StopReason), such as `success`, `budget_exhausted`, `cancelled` |
/// | `reason` of a skipped hedge | a [`SkipReason`](crate::SkipReason), such as `denied` |
/// | `winner` | `primary`, `retry`, `hedge`, or `none` if no attempt succeeded |
///
/// The first event describes the metrics to the recorder, so install the recorder before the first call. A
/// Prometheus exporter needs buckets, such as [`BUCKETS`](Self::BUCKETS), to export the durations as histograms.
///
/// # Cost
///
/// Three look-ups in the recorder per call, three more per retry, two more per hedge, and one per skipped hedge. The
/// table of [`Observer`](Observer#cost) has the time of a call.
///
/// ```
/// use tower_attempt::MetricsObserver;
///
/// // `.observer(observer.clone())` on the builders of both layers.
/// let observer = MetricsObserver::new().with_destination();
/// # drop(observer);
/// assert!(MetricsObserver::BUCKETS.is_sorted());
/// ```
#[derive(Clone, Debug, Default)]
pub struct MetricsObserver {
    has_destination: bool,
    described: Arc<OnceLock<()>>,
}

impl MetricsObserver {
    /// Upper bounds of histogram buckets, in seconds, as OpenTelemetry advises for `http.client.request.duration`.
    pub const BUCKETS: [f64; 14] = [
        0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    ];

    /// An observer whose metrics have no label `destination`.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Labels each metric with the request's authority, such as `payments:8080`.
    ///
    /// Most recorders keep each label value forever. Use this only if requests go to a bounded set of destinations. The
    /// label is empty if the request's URI has no authority, or if the protocol is neither HTTP nor gRPC.
    #[must_use]
    pub fn with_destination(mut self) -> Self {
        self.has_destination = true;
        self
    }

    fn labels<const N: usize>(
        &self,
        call: &CallInfo,
        more: [(&'static str, &'static str); N],
    ) -> Vec<Label> {
        let mut labels = Vec::with_capacity(N + 2);
        labels.push(Label::new("name", Arc::clone(&call.name)));
        if self.has_destination {
            let destination = call.authority().unwrap_or_default();
            labels.push(Label::new("destination", destination.to_owned()));
        }
        labels.extend(more.map(|(key, value)| Label::from_static_parts(key, value)));
        labels
    }
}

fn describe() {
    for [attempts, attempt, call] in [RETRY, HEDGE] {
        describe_counter!(attempts, Unit::Count, "Attempts sent.");
        let help = "Time from sending an attempt to its end: response head, error, timeout or cancellation.";
        describe_histogram!(attempt, Unit::Seconds, help);
        let help = "Time of a call with all its attempts and delays.";
        describe_histogram!(call, Unit::Seconds, help);
    }
    let help = "Delay before a retry.";
    describe_histogram!("retry_delay_seconds", Unit::Seconds, help);
    let help = "Hedges that were due and not sent.";
    describe_counter!("hedge_skipped_total", Unit::Count, help);
}

impl Observer for MetricsObserver {
    fn on_event(&self, call: &CallInfo, event: Event<'_>) {
        self.described.get_or_init(describe);
        let [attempts, attempt_duration, call_duration] = match call.layer {
            LayerKind::Retry => RETRY,
            LayerKind::Hedge => HEDGE,
        };
        match event {
            Event::AttemptStarted { attempt } => {
                let labels = self.labels(call, [("kind", attempt.kind().as_str())]);
                counter!(attempts, labels).increment(1);
            }
            Event::AttemptEnded {
                attempt,
                outcome,
                verdict,
                elapsed,
            } => {
                let outcome = ("outcome", outcome.label(verdict));
                let labels = self.labels(call, [("kind", attempt.kind().as_str()), outcome]);
                histogram!(attempt_duration, labels).record(elapsed);
            }
            Event::RetryScheduled {
                is_shadow: false,
                delay,
                source,
                ..
            } => {
                let labels = self.labels(call, [("source", source.as_str())]);
                histogram!("retry_delay_seconds", labels).record(delay);
            }
            Event::RetryScheduled { .. } => {}
            Event::HedgeSkipped { reason, .. } => {
                let labels = self.labels(call, [("reason", reason.as_str())]);
                counter!("hedge_skipped_total", labels).increment(1);
            }
            Event::CallEnded { reason, winner } => {
                let winner = winner.map_or("none", |winner| winner.kind().as_str());
                let labels = [("reason", reason.as_str()), ("winner", winner)];
                histogram!(call_duration, self.labels(call, labels)).record(call.elapsed());
            }
        }
    }

    fn reads_request(&self) -> bool {
        self.has_destination
    }
}
