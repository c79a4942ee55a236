use std::error::Error;
use std::time::Duration;

use tracing::field::{self, Empty};
use tracing::{Level, Span};

use super::{
    AttemptEnded, AttemptOutcome, AttemptScope, AttemptStarted, CallEnded, CallInfo, HedgeSkipped,
    LayerKind, Observer, RetryScheduled, StopReason,
};
use crate::{AttemptKind, Verdict};

const TARGET: &str = "tower_attempt";

/// Writes events as log lines with [`tracing`](https://docs.rs/tracing), and opens [spans](Self::spans) on demand.
///
/// The target is `tower_attempt`. A call that succeeds with its first attempt, before a hedge is due, writes no line.
///
/// | line | level | fields |
/// |---|---|---|
/// | `hedging` | DEBUG | `attempt` |
/// | `attempt failed` | DEBUG | `attempt`, `outcome` as in [`AttemptEnded::result`], `http.response.status_code`, `rpc.grpc.status_code`, `error`, `elapsed_ms` |
/// | `retrying`, or `would retry` in shadow mode | DEBUG | `attempt` that failed, `delay_ms`, `source` |
/// | `hedge skipped` | DEBUG | `attempt`, `reason` |
/// | `gave up` | WARN | `reason`, `attempts`, `elapsed_ms`; a retry layer stopped although a retry could help |
/// | `call succeeded`, `call failed`, `call cancelled` | DEBUG | `reason`, `attempts`, `winner`, `elapsed_ms` |
///
/// Each line also has `layer` (`retry` or `hedge`), `name` if the layer has one, `server.address` if the request's URI
/// has a host, and `call`, the same number on all lines of a call.
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
    /// The span is entered while the attempt runs, so that spans of the inner service are its children. Attempts
    /// of one call are siblings, also when they run concurrently. The fields are named as
    /// in OpenTelemetry's HTTP client spans:
    ///
    /// | field | value |
    /// |---|---|
    /// | `otel.name` | the method, such as `GET` |
    /// | `otel.kind` | `client` |
    /// | `otel.status_code` | `ERROR` if the attempt failed |
    /// | `http.request.method`, `server.address`, `server.port` | the request's method, host and port |
    /// | `http.request.resend_count` | the number of earlier attempts; absent on the first |
    /// | `http.response.status_code`, `rpc.grpc.status_code` | the status in the response head |
    /// | `error.type` | the HTTP status from 400 on, `timeout`, `not_sent`, or `_OTHER` |
    /// | `layer`, `name`, `call`, `kind`, `outcome` | as in log lines; `kind` is `primary`, `retry` or `hedge` |
    ///
    /// # Cost
    ///
    /// A span and an allocation for each attempt, if a subscriber enables it.
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
            layer = $call.layer().as_str(),
            name = name($call),
            call = $call.id(),
            server.address = $call.host(),
            $($fields)+
        )
    };
}

fn name(call: &CallInfo) -> Option<&str> {
    Some(call.name()).filter(|name| !name.is_empty())
}

impl Observer for TracingObserver {
    fn attempt_started(&self, event: &AttemptStarted<'_>) -> Option<Box<dyn AttemptScope>> {
        let AttemptStarted { call, attempt, .. } = event;
        let number = attempt.number();
        if attempt.kind() == AttemptKind::Hedge {
            line!(DEBUG, call, attempt = number, "hedging");
        }
        if !self.has_spans {
            return None;
        }
        let span = tracing::info_span!(
            target: TARGET,
            "attempt",
            otel.name = call.method(),
            otel.kind = "client",
            otel.status_code = Empty,
            layer = call.layer().as_str(),
            name = name(call),
            call = call.id(),
            kind = attempt.kind().as_str(),
            http.request.method = call.method(),
            http.request.resend_count = Some(number - 1).filter(|earlier| *earlier > 0),
            server.address = call.host(),
            server.port = call.port(),
            http.response.status_code = Empty,
            rpc.grpc.status_code = Empty,
            error.type = Empty,
            outcome = Empty,
        );
        match span.is_disabled() {
            true => None,
            false => Some(Box::new(span)),
        }
    }

    fn attempt_ended(&self, event: &AttemptEnded<'_>) {
        let is_failure = match event.verdict {
            Some(verdict) => verdict != Verdict::Success,
            None => matches!(event.outcome, AttemptOutcome::TimedOut(_)),
        };
        if !is_failure {
            return;
        }
        let (http, grpc) = statuses(event.outcome);
        let error: Option<&dyn Error> = match &event.outcome {
            AttemptOutcome::Error(error) => *error,
            AttemptOutcome::TimedOut(elapsed) => Some(elapsed),
            _ => None,
        };
        line!(
            DEBUG,
            event.call,
            attempt = event.attempt.number(),
            outcome = event.result(),
            http.response.status_code = http,
            rpc.grpc.status_code = grpc,
            error = error.map(field::display),
            elapsed_ms = millis(event.elapsed),
            "attempt failed"
        );
    }

    fn retry_scheduled(&self, event: &RetryScheduled<'_>) {
        let attempt = event.attempt.number();
        let (delay_ms, source) = (millis(event.delay), event.source.as_str());
        match event.is_shadow {
            false => line!(DEBUG, event.call, attempt, delay_ms, source, "retrying"),
            true => line!(DEBUG, event.call, attempt, delay_ms, source, "would retry"),
        }
    }

    fn hedge_skipped(&self, event: &HedgeSkipped<'_>) {
        let attempt = event.attempt.number();
        let reason = event.reason.as_str();
        line!(DEBUG, event.call, attempt, reason, "hedge skipped");
    }

    fn call_ended(&self, event: &CallEnded<'_>) {
        let CallEnded { call, attempts, .. } = *event;
        let (reason, elapsed_ms) = (event.reason.as_str(), millis(event.elapsed));
        let winner = event.winner.map(|winner| winner.number());
        match event.reason {
            StopReason::Success if attempts == 1 && event.skipped == 0 => {}
            StopReason::Success => {
                line!(
                    DEBUG,
                    call,
                    reason,
                    attempts,
                    winner,
                    elapsed_ms,
                    "call succeeded"
                );
            }
            StopReason::Cancelled => {
                line!(DEBUG, call, reason, attempts, elapsed_ms, "call cancelled");
            }
            StopReason::Fatal | StopReason::Nested | StopReason::Shadow | StopReason::Off => {
                line!(DEBUG, call, reason, attempts, elapsed_ms, "call failed");
            }
            // The layer above decides whether the failure of a race is the last word.
            _ if call.layer() == LayerKind::Hedge => {
                line!(DEBUG, call, reason, attempts, elapsed_ms, "call failed");
            }
            _ => line!(WARN, call, reason, attempts, elapsed_ms, "gave up"),
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// The HTTP and the gRPC status.
fn statuses(outcome: AttemptOutcome<'_>) -> (Option<u16>, Option<u16>) {
    match outcome {
        AttemptOutcome::Response {
            http_status,
            grpc_status,
        } => (http_status, grpc_status),
        _ => (None, None),
    }
}

impl AttemptScope for Span {
    fn enter(&self, attempt: &mut dyn FnMut()) {
        self.in_scope(attempt);
    }

    fn end(&self, event: &AttemptEnded<'_>) {
        let (http, grpc) = statuses(event.outcome);
        self.record("http.response.status_code", http);
        self.record("rpc.grpc.status_code", grpc);
        self.record("outcome", event.result());
        let status = http.filter(|status| *status >= 400);
        let status = status.or(grpc.filter(|status| *status > 0));
        let error = match (status, event.result()) {
            (Some(status), _) => &*status.to_string(),
            (None, "success" | "cancelled") => return,
            (None, known @ ("timeout" | "not_sent")) => known,
            (None, _) => "_OTHER",
        };
        self.record("error.type", error);
        self.record("otel.status_code", "ERROR");
    }
}
