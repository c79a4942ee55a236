use std::error::Error;
use std::time::Duration;

use tracing::field::{self, Empty};
use tracing::{Level, Span};

use super::{AttemptOutcome, AttemptScope, CallInfo, Event, LayerKind, Observer, StopReason};
use crate::{Attempt, AttemptKind};

const TARGET: &str = "tower_attempt";

/// Writes events as log lines with [`tracing`](https://docs.rs/tracing), and opens [spans](Self::spans) on demand.
///
/// The target is `tower_attempt`. A call that succeeds with its first attempt, before a hedge is due, writes no line.
///
/// | line | level | fields |
/// |---|---|---|
/// | `hedging` | DEBUG | `attempt` |
/// | `attempt failed` | DEBUG | `attempt`, `outcome` as in [`AttemptOutcome::label`], `http.response.status_code`, `rpc.grpc.status_code`, `error`, `elapsed_ms` |
/// | `retrying`, or `would retry` in shadow mode | DEBUG | `attempt` that failed, `delay_ms`, `source` |
/// | `hedge skipped` | DEBUG | `attempt`, `reason` |
/// | `call ended` | DEBUG | `reason`, `attempts`, `winner`, `elapsed_ms` |
/// | `gave up` | WARN | `reason`, `attempts`, `elapsed_ms`; instead of `call ended` in a retry layer, unless `reason` is `success`, `fatal`, `nested`, `shadow`, `off` or `cancelled` |
///
/// Each line also has the fields `layer` (`retry` or `hedge`) and `call`. The number `call` is the same on all lines of
/// a call in one layer. If the layer has a name, the line has `name`. Over HTTP and gRPC, the line has `server.address`
/// if the request's URI has a host.
///
/// ```
/// use tower_attempt::TracingObserver;
///
/// // `.observer(observer)` on the builder of a layer.
/// let observer = TracingObserver::new().spans();
/// assert_ne!(observer, TracingObserver::new());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TracingObserver {
    has_spans: bool,
}

impl TracingObserver {
    /// An observer that writes log lines and no spans.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Also opens a span for each attempt, at level INFO.
    ///
    /// A call sends and polls each attempt inside the attempt's span. So a span that the inner service opens is usually
    /// a child of the attempt's span. If the caller makes and polls a call in one span, the spans of the call's
    /// attempts are siblings, even if the attempts run concurrently.
    ///
    /// The span has the following fields. Some are named as in OpenTelemetry's HTTP client spans.
    ///
    /// | field | value |
    /// |---|---|
    /// | `otel.name` | the method, such as `GET` |
    /// | `otel.kind` | `client` |
    /// | `otel.status_code` | `ERROR` if the attempt failed, or if `error.type` is a status |
    /// | `http.request.method`, `server.address`, `server.port` | the request's method and host, and the port if the URI has one |
    /// | `http.request.resend_count` | the attempt's number minus 1; absent on the first |
    /// | `http.response.status_code`, `rpc.grpc.status_code` | the status in the response head |
    /// | `error.type` | the HTTP status from 400 on, the gRPC status from 1 on, `timeout`, `not_sent`, or `_OTHER` |
    /// | `layer`, `name`, `call`, `kind`, `outcome` | as in log lines; `kind` is `primary`, `retry` or `hedge` |
    ///
    /// # Cost
    ///
    /// A span and at least one allocation for each attempt, if a subscriber enables the span.
    #[must_use]
    pub fn spans(mut self) -> Self {
        self.has_spans = true;
        self
    }
}

/// A log line about a call.
macro_rules! line {
    ($level:ident, $call:expr, $($fields:tt)+) => {
        tracing::event!(
            target: TARGET,
            Level::$level,
            layer = $call.layer.as_str(),
            name = name($call),
            call = $call.id(),
            server.address = host_and_port($call).0,
            $($fields)+
        )
    };
}

fn name(call: &CallInfo) -> Option<&str> {
    Some(&*call.name).filter(|name| !name.is_empty())
}

fn host_and_port(call: &CallInfo) -> (Option<&str>, Option<u16>) {
    let authority = call.authority();
    let split = authority.and_then(|authority| authority.rsplit_once(':'));
    match split.map(|(host, port)| (host, port.parse())) {
        Some((host, Ok(port))) => (Some(host), Some(port)),
        _ => (authority, None),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

impl Observer for TracingObserver {
    fn on_event(&self, call: &CallInfo, event: Event<'_>) {
        match event {
            Event::AttemptStarted { attempt } if attempt.kind() == AttemptKind::Hedge => {
                line!(DEBUG, call, attempt = attempt.number(), "hedging");
            }
            Event::AttemptStarted { .. } => {}
            Event::AttemptEnded {
                attempt,
                outcome,
                verdict,
                elapsed,
            } => {
                let (attempt, elapsed_ms) = (attempt.number(), millis(elapsed));
                let label = outcome.label(verdict);
                let is_failure = !matches!(label, "success" | "cancelled");
                let (http, grpc, error) = match &outcome {
                    AttemptOutcome::Response {
                        http_status,
                        grpc_status,
                    } => (*http_status, *grpc_status, None),
                    AttemptOutcome::Error(error) => (None, None, *error),
                    AttemptOutcome::TimedOut(elapsed) => (None, None, Some(elapsed as &dyn Error)),
                    AttemptOutcome::Cancelled => (None, None, None),
                };
                if is_failure {
                    line!(
                        DEBUG,
                        call,
                        attempt,
                        outcome = label,
                        http.response.status_code = http,
                        rpc.grpc.status_code = grpc,
                        error = error.map(field::display),
                        elapsed_ms,
                        "attempt failed"
                    );
                }
                // This event arrives inside the attempt's scope, so the current span is usually the attempt's. It can
                // be another span if a filter disabled the attempt's span, or if the second observer of a pair has
                // entered a span of its own.
                let span = Span::current();
                if self.has_spans && span.metadata().is_some_and(|span| span.target() == TARGET) {
                    span.record("http.response.status_code", http);
                    span.record("rpc.grpc.status_code", grpc);
                    span.record("outcome", label);
                    let status = http.filter(|status| *status >= 400);
                    match (status.or(grpc.filter(|status| *status > 0)), label) {
                        (Some(status), _) => span.record("error.type", &*status.to_string()),
                        (None, "timeout" | "not_sent") => span.record("error.type", label),
                        (None, _) if is_failure => span.record("error.type", "_OTHER"),
                        (None, _) => return,
                    };
                    span.record("otel.status_code", "ERROR");
                }
            }
            Event::RetryScheduled {
                attempt,
                delay,
                source,
                is_shadow,
            } => {
                let (attempt, delay_ms, source) =
                    (attempt.number(), millis(delay), source.as_str());
                let message = if is_shadow { "would retry" } else { "retrying" };
                line!(DEBUG, call, attempt, delay_ms, source, "{message}");
            }
            Event::HedgeSkipped { attempt, reason } => {
                let (attempt, reason) = (attempt.number(), reason.as_str());
                line!(DEBUG, call, attempt, reason, "hedge skipped");
            }
            Event::CallEnded { reason, winner } => {
                let (attempts, elapsed_ms) = (call.attempts, millis(call.elapsed()));
                let winner = winner.map(|winner| winner.number());
                let could_help = !matches!(
                    reason,
                    StopReason::Success
                        | StopReason::Fatal
                        | StopReason::Nested
                        | StopReason::Shadow
                        | StopReason::Off
                        | StopReason::Cancelled
                );
                let reason = reason.as_str();
                // A hedge layer never warns, because a retry layer above may still retry the call.
                if could_help && call.layer == LayerKind::Retry {
                    line!(WARN, call, reason, attempts, elapsed_ms, "gave up");
                } else if winner != Some(1) || attempts > 1 || call.skipped > 0 {
                    line!(
                        DEBUG,
                        call,
                        reason,
                        attempts,
                        winner,
                        elapsed_ms,
                        "call ended"
                    );
                }
            }
        }
    }

    fn attempt_scope(&self, call: &CallInfo, attempt: Attempt) -> Option<AttemptScope> {
        if !self.has_spans {
            return None;
        }
        let earlier = attempt.number() - 1;
        let (host, port) = host_and_port(call);
        let span = tracing::info_span!(
            target: TARGET,
            "attempt",
            otel.name = call.method(),
            otel.kind = "client",
            otel.status_code = Empty,
            layer = call.layer.as_str(),
            name = name(call),
            call = call.id(),
            kind = attempt.kind().as_str(),
            http.request.method = call.method(),
            http.request.resend_count = (earlier > 0).then_some(earlier),
            server.address = host,
            server.port = port,
            http.response.status_code = Empty,
            rpc.grpc.status_code = Empty,
            error.type = Empty,
            outcome = Empty,
        );
        if span.is_disabled() {
            return None;
        }
        Some(Box::new(move |run| span.in_scope(run)))
    }
}
