use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

#[cfg(feature = "http")]
use http::{Method, Uri};

/// Facts about a call that every event carries.
#[derive(Debug)]
pub struct CallInfo {
    layer: LayerKind,
    name: Arc<str>,
    request: RequestLine,
    id: OnceLock<u64>,
}

/// The method and URI of an HTTP request; empty for other protocols.
#[derive(Clone, Debug, Default)]
pub struct RequestLine {
    #[cfg(feature = "http")]
    pub(crate) line: Option<(Method, Uri)>,
}

impl RequestLine {
    #[cfg(feature = "http")]
    fn uri(&self) -> Option<&Uri> {
        self.line.as_ref().map(|(_, uri)| uri)
    }
}

impl CallInfo {
    pub(super) fn new(layer: LayerKind, name: Arc<str>, request: RequestLine) -> Self {
        Self {
            layer,
            name,
            request,
            id: OnceLock::new(),
        }
    }

    /// The kind of layer that sends the events.
    #[must_use]
    pub fn layer(&self) -> LayerKind {
        self.layer
    }

    /// The layer's name, as given to the builder; empty by default.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    #[cfg(feature = "metrics")]
    pub(super) fn shared_name(&self) -> Arc<str> {
        Arc::clone(&self.name)
    }

    /// A number that no other observed call of this process has.
    #[must_use]
    pub fn id(&self) -> u64 {
        static LAST: AtomicU64 = AtomicU64::new(0);
        *self.id.get_or_init(|| LAST.fetch_add(1, Relaxed) + 1)
    }
}

#[cfg(feature = "http")]
impl CallInfo {
    /// The request's method; `None` unless [`reads_request`](super::Observer::reads_request).
    #[must_use]
    pub fn method(&self) -> Option<&str> {
        let (method, _) = self.request.line.as_ref()?;
        Some(method.as_str())
    }

    /// The request's path without the query. In gRPC this is the full name of the method.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.request.uri().map(Uri::path)
    }

    /// The authority of the request's URI: the host, with the port if the URI has one.
    #[must_use]
    pub fn authority(&self) -> Option<&str> {
        let authority = self.request.uri()?.authority()?;
        Some(authority.as_str())
    }

    /// The host of the request's URI.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.request.uri()?.host()
    }

    /// The port of the request's URI.
    #[must_use]
    pub fn port(&self) -> Option<u16> {
        self.request.uri()?.port_u16()
    }
}

/// Facts that only HTTP requests have.
#[cfg(not(feature = "http"))]
#[expect(
    clippy::unused_self,
    reason = "the same methods as with the feature `http`"
)]
impl CallInfo {
    pub(super) fn method(&self) -> Option<&str> {
        None
    }

    pub(super) fn authority(&self) -> Option<&str> {
        None
    }

    pub(super) fn host(&self) -> Option<&str> {
        None
    }

    pub(super) fn port(&self) -> Option<u16> {
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
            /// The label in metrics and log lines.
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
    /// Where a delay comes from.
    DelaySource {
        /// The layer's backoff.
        Backoff => "backoff",
        /// The user's rule, such as a closure given to `backoff_by`.
        Custom => "custom",
        /// The server's hint, or the wait that a layer below names when it rejects a request.
        Server => "server",
        /// No delay: there is proof that the server did not process the attempt, for the first time in
        /// this call.
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
        /// No attempts remain: a retry layer sent `max_attempts`, or all attempts of a hedge layer failed.
        AttemptsExhausted => "attempts_exhausted",
        /// There is no copy of the request: its kind is never resent, or its body is too long.
        NotRepeatable => "not_repeatable",
        /// The server forbids a further attempt, with gRPC's negative pushback.
        ServerRefused => "server_refused",
        /// The server demands a longer wait than the layer allows.
        HintTooLong => "hint_too_long",
        /// The next attempt would start after the [`Deadline`](crate::Deadline) or after `retry_until`, or the
        /// layer's `deadline` ended the call.
        DeadlineExceeded => "deadline_exceeded",
        /// The budget has no token.
        BudgetExhausted => "budget_exhausted",
        /// The inner service failed to become ready for the next attempt.
        NotReady => "not_ready",
        /// Another retry layer, above or below, retries this request.
        Nested => "nested",
        /// The layer would have retried, but is in shadow mode.
        Shadow => "shadow",
        /// Retries are switched off.
        Off => "off",
        /// The caller dropped the call.
        Cancelled => "cancelled",
    }
}

labelled! {
    /// Why a hedge that was due is not sent.
    SkipReason {
        /// The budget has no token.
        Denied => "denied",
        /// Fewer than 2 % of this class's last 200 hedges won, so only some are sent. If callers time out
        /// before hedges can win, a lower `max_delay` helps.
        HeldBack => "held_back",
        /// No instance of the service was ready before the call's deadline or end or before a server's pushback,
        /// or the service failed to become ready.
        NotReady => "not_ready",
        /// The request can't be copied: its body is too long, or still streams with an error type that
        /// could not interrupt it, or its connection is about to be upgraded.
        NotRepeatable => "not_repeatable",
        /// The layer is in shadow mode.
        Shadow => "shadow",
    }
}
