use std::error::Error;
use std::time::Duration;

use super::{CallInfo, DelaySource, SkipReason, StopReason};
use crate::{Attempt, Elapsed, RetryReason, Verdict};

/// An attempt is sent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptStarted<'a> {
    /// The call that the attempt belongs to.
    pub call: &'a CallInfo,
    /// The attempt; the first one has the number 1.
    pub attempt: Attempt,
}

/// An attempt has an outcome, or was dropped without one.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct AttemptEnded<'a> {
    /// The call that the attempt belongs to.
    pub call: &'a CallInfo,
    /// The attempt; the first one has the number 1.
    pub attempt: Attempt,
    /// The attempt's response, error or end.
    pub outcome: AttemptOutcome<'a>,
    /// The classification of the outcome; `None` for an attempt that was cancelled or that the call's
    /// deadline ended.
    pub verdict: Option<Verdict>,
    /// Time since the attempt was sent.
    pub elapsed: Duration,
}

impl AttemptEnded<'_> {
    /// The classification as a label: `success`, `fatal`, `unsafe`, `unprocessed`, `transient`, `throttled`,
    /// `timeout`, `not_sent` or `cancelled`.
    #[must_use]
    pub fn result(&self) -> &'static str {
        match (self.verdict, self.outcome) {
            (Some(Verdict::Success), _) => "success",
            (Some(Verdict::Fatal), _) => "fatal",
            (Some(Verdict::Unsafe), _) => "unsafe",
            (Some(Verdict::Unprocessed), _) => "unprocessed",
            (Some(Verdict::Retry { reason, .. }), _) => match reason {
                RetryReason::Transient => "transient",
                RetryReason::Throttled => "throttled",
                RetryReason::Timeout => "timeout",
                RetryReason::NotSent => "not_sent",
            },
            (None, AttemptOutcome::TimedOut(_)) => "timeout",
            (None, _) => "cancelled",
        }
    }
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AttemptOutcome<'a> {
    /// The service returned a response.
    #[non_exhaustive]
    Response {
        /// The HTTP status; `None` for other protocols.
        http_status: Option<u16>,
        /// The gRPC status code in the response head; `None` while the body streams, and for other protocols.
        grpc_status: Option<u16>,
    },
    /// The service returned an error. `None` stands for an unboxed error of a type that no enabled feature
    /// recognises.
    Error(Option<&'a (dyn Error + 'static)>),
    /// The layer's attempt timeout or call deadline ended the attempt.
    TimedOut(Elapsed),
    /// The attempt was dropped: another one won, or the caller dropped the call.
    Cancelled,
}

/// Another attempt follows a failed one after a delay.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RetryScheduled<'a> {
    /// The call that is retried.
    pub call: &'a CallInfo,
    /// The attempt that failed.
    pub attempt: Attempt,
    /// Time until the next attempt.
    pub delay: Duration,
    /// Where the delay comes from.
    pub source: DelaySource,
    /// Whether the layer is in shadow mode and sends no retry.
    pub is_shadow: bool,
}

/// A hedge that was due is not sent.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct HedgeSkipped<'a> {
    /// The call that is not hedged.
    pub call: &'a CallInfo,
    /// The hedge.
    pub attempt: Attempt,
    /// Why the hedge is not sent.
    pub reason: SkipReason,
}

/// A call ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct CallEnded<'a> {
    /// The call.
    pub call: &'a CallInfo,
    /// Why the call ended.
    pub reason: StopReason,
    /// The attempt whose response the caller receives; `None` unless the call succeeded.
    pub winner: Option<Attempt>,
    /// Number of attempts sent, the first one included.
    pub attempts: u32,
    /// Number of hedges that were due and not sent.
    pub skipped: u32,
    /// Total time between a failed attempt and the next, in which nothing was in flight.
    pub waited: Duration,
    /// Time since the call started.
    pub elapsed: Duration,
}
