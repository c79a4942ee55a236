use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

#[cfg(feature = "http")]
use http::{Method, Uri, uri::Authority};
use tokio::time::Instant;

use crate::{Attempt, Elapsed, Verdict};

/// A step of a call. Match its variants with `..`, so that a new field does not break your code. [`CallInfo`] has the
/// totals of the call so far.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The layer sends an attempt.
    AttemptStarted {
        /// The attempt; the first one has the number 1.
        attempt: Attempt,
    },
    /// An attempt has an outcome, or the call ended before the attempt had one.
    AttemptEnded {
        /// The attempt.
        attempt: Attempt,
        /// How the attempt ended.
        outcome: AttemptOutcome<'a>,
        /// The classification of the outcome; `None` for an attempt that was cancelled or that the call's
        /// deadline ended.
        verdict: Option<Verdict>,
        /// Time since the attempt was sent.
        elapsed: Duration,
    },
    /// A retry is scheduled after a failed attempt. In shadow mode, a retry would probably have been scheduled.
    RetryScheduled {
        /// The attempt that failed.
        attempt: Attempt,
        /// Delay before the retry.
        delay: Duration,
        /// Where the delay comes from.
        source: DelaySource,
        /// Whether the layer is in shadow mode, and so sends no retry.
        is_shadow: bool,
    },
    /// A hedge that was due is not sent.
    HedgeSkipped {
        /// The hedge.
        attempt: Attempt,
        /// Why the hedge is not sent.
        reason: SkipReason,
    },
    /// The call ended.
    CallEnded {
        /// Why the call ended.
        reason: StopReason,
        /// The attempt whose outcome the caller receives; `None` unless the call succeeded.
        winner: Option<Attempt>,
    },
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum AttemptOutcome<'a> {
    /// The service returned a response.
    #[non_exhaustive]
    Response {
        /// The HTTP status, also over gRPC; `None` for other protocols.
        http_status: Option<u16>,
        /// The gRPC status code in the response head; `None` for other protocols, and if the head has no `grpc-status`.
        grpc_status: Option<u16>,
    },
    /// The service returned an error. The field is this error. If the error's type is
    /// [registered](crate::WrapsError::register), the field is the wrapped error instead. `None` replaces an error
    /// whose type the layer does not recognise: see [`WrapsError`](crate::WrapsError).
    Error(Option<&'a (dyn Error + 'static)>),
    /// An attempt timeout or the call's deadline ended the attempt.
    TimedOut(Elapsed),
    /// The attempt has no outcome for the caller. Usually another attempt ended the call, or the caller dropped the
    /// call.
    Cancelled,
}

impl AttemptOutcome<'_> {
    /// Returns the attempt's label in metrics and log lines. If there is a verdict, this is the verdict's label.
    /// Otherwise it is `timeout` or `cancelled`.
    #[must_use]
    pub fn label(&self, verdict: Option<Verdict>) -> &'static str {
        match (verdict, self) {
            (Some(verdict), _) => verdict.as_str(),
            (None, Self::TimedOut(_)) => "timeout",
            (None, _) => "cancelled",
        }
    }
}

/// Facts about a call that come with every event.
#[derive(Debug)]
#[non_exhaustive]
pub struct CallInfo {
    /// The kind of layer that sends the event.
    pub layer: LayerKind,
    /// The layer's name, as given to the builder; empty by default.
    pub name: Arc<str>,
    /// Number of attempts sent so far.
    pub attempts: u32,
    /// Number of [`HedgeSkipped`](Event::HedgeSkipped) events so far.
    pub skipped: u32,
    /// Sum of the delays before the retries that were scheduled so far.
    pub delays: Duration,
    pub(super) start: Instant,
    pub(super) request: RequestLine,
    pub(super) id: OnceLock<u64>,
}

impl CallInfo {
    /// Time since the call started.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// A number that no other observed call of this process has. Nested layers give a call different numbers.
    #[must_use]
    pub fn id(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        *self.id.get_or_init(|| LAST.fetch_add(1, Relaxed) + 1)
    }

    /// The request's method. Method, path and authority are known only if the protocol is HTTP or gRPC and the
    /// observer [reads the request](super::Observer::reads_request). Otherwise they are `None`.
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        self.request.parts().map(|(method, ..)| method)
    }

    /// The request's path without the query. In gRPC this is the full name of the method, such as
    /// `/helloworld.Greeter/SayHello`. `None` if [`method`](Self::method) is `None`.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.request.parts().map(|(_, path, _)| path)
    }

    /// The authority of the request's URI: the host, with the port if the URI has one. `None` if the URI has no
    /// authority, or if [`method`](Self::method) is `None`.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        self.request.parts()?.2
    }
}

/// The method and URI of an HTTP or gRPC request. Empty for other protocols, and if the observer does not [read the
/// request](super::Observer::reads_request).
#[derive(Clone, Debug, Default)]
pub struct RequestLine(#[cfg(feature = "http")] pub(crate) Option<(Method, Uri)>);

impl RequestLine {
    /// The method, the path and the authority.
    fn parts(&self) -> Option<(&str, &str, Option<&str>)> {
        #[cfg(feature = "http")]
        return self.0.as_ref().map(|(method, uri)| {
            // Strips the user name and the password.
            let authority = uri.authority().map(Authority::as_str);
            let authority = authority.and_then(|authority| authority.rsplit('@').next());
            (method.as_str(), uri.path(), authority)
        });
        #[cfg(not(feature = "http"))]
        None
    }
}

/// Defines an enum whose variants have labels.
macro_rules! labelled {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident => $label:literal,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// Returns the text that stands for this value in metrics and log lines.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)*
                }
            }
        }
    };
}

labelled! {
    /// The kind of layer that sends an event.
    LayerKind {
        /// A retry layer.
        Retry => "retry",
        /// A hedge layer.
        Hedge => "hedge",
    }
}

labelled! {
    /// Where the delay before a retry comes from.
    DelaySource {
        /// The layer's backoff.
        Backoff => "backoff",
        /// The user's rule, such as a closure given to `backoff_by`.
        Custom => "custom",
        /// A wait named by the server's hint, by a layer below that rejected the request, or by the verdict of a user's
        /// rule.
        Server => "server",
        /// No delay: the first retry of the call after a [`Verdict::Unprocessed`].
        Unprocessed => "unprocessed",
    }
}

labelled! {
    /// Why a call ended.
    StopReason {
        /// The outcome is a success.
        Success => "success",
        /// The outcome is a failure that retrying will not help, or that must not be retried.
        Fatal => "fatal",
        /// A retry layer sent `max_attempts` attempts. Or every attempt that a hedge layer sent had a retryable
        /// failure.
        AttemptsExhausted => "attempts_exhausted",
        /// The request cannot be resent, for example because its body is too long, because it has the header field
        /// `Upgrade`, or because its method is CONNECT.
        NotResendable => "not_resendable",
        /// The server forbids a further attempt, as with gRPC's negative pushback, or the verdict of a user's rule
        /// does: see [`Hint::Never`](crate::Hint::Never).
        RetryForbidden => "retry_forbidden",
        /// The server, a layer below, or the verdict of a user's rule demands a wait longer than the layer's
        /// `max_retry_after`.
        RetryAfterTooLong => "retry_after_too_long",
        /// A deadline ended the call, or the next attempt would start too late: at or after the request's
        /// [deadline](crate::RetryOverride::deadline) or `grpc-timeout`, or the layer's `retry_until` or `deadline`.
        DeadlineExceeded => "deadline_exceeded",
        /// The budget allows no extra attempt.
        BudgetExhausted => "budget_exhausted",
        /// The inner service failed to become ready for the next attempt.
        NotReady => "not_ready",
        /// Another retry layer, above or below, is responsible: it retries this request, has given up on it, or sent
        /// retries that, with this layer's attempts, used up `max_attempts`.
        Nested => "nested",
        /// The layer would probably have retried, but is in shadow mode.
        Shadow => "shadow",
        /// Retries are switched off.
        Off => "off",
        /// The caller dropped the call, or the call panicked.
        Cancelled => "cancelled",
    }
}

labelled! {
    /// Why a hedge that was due is not sent.
    SkipReason {
        /// The budget allows no extra attempt.
        Denied => "denied",
        /// Hedges of this request's class have rarely won (fewer than 4 of 200), so only some of them are sent. The
        /// `key` of the layer's builder chooses the class. Only the hedges of a `percentile` are held back.
        ///
        /// If a caller drops its call, the call's hedges count as hedges that did not win. If callers often time out
        /// before hedges can win, set a lower `max_delay`.
        HeldBack => "held_back",
        /// The hedge's service failed to become ready, or was not ready before the end of the call or the deadline. Or
        /// it became ready during a wait that a [hint](crate::Hint) demands, or after a hint forbade the hedge.
        NotReady => "not_ready",
        /// The request cannot be copied. For example, an attempt has read more than `replay_limit` of a streaming body,
        /// or the request has the header field `Upgrade`. Or the body still streams, and the body's error type cannot
        /// express an [interruption](crate::Interrupted).
        NotResendable => "not_resendable",
        /// The layer is in shadow mode.
        Shadow => "shadow",
    }
}
