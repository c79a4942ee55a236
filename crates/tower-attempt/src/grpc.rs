mod answer;
mod code;
mod pushback;
mod timeout;

use std::sync::Arc;

use http::{HeaderName, HeaderValue, StatusCode};
use tokio::time::Instant;

pub(crate) use self::answer::deadline_exceeded;
pub use self::code::GrpcCode;
use crate::http::{
    Classified, Dialect, Fault, HttpContext, HttpRequest, HttpResponse, OutcomeView,
    ProtocolSettings,
};
use crate::protocol::sealed::Sealed;
use crate::{Attempt, BuildError, Deadline, Hint, Protocol, Verdict};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
// Error codes of HTTP/2 (RFC 9113 §7).
const CANCEL: u32 = 0x8;
const ENHANCE_YOUR_CALM: u32 = 0xb;
const INADEQUATE_SECURITY: u32 = 0xc;

const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// The protocol gRPC, with the pushback and the header fields of gRFC A6.
///
/// The standard rules give each outcome a [`Verdict`]:
///
/// | outcome | method declared idempotent | any other method |
/// |---|---|---|
/// | UNAVAILABLE with a valid `grpc-retry-pushback-ms` | transient | transient |
/// | RESOURCE_EXHAUSTED with a valid `grpc-retry-pushback-ms` | throttled | throttled |
/// | proof that the server did not process the call: REFUSED_STREAM, GOAWAY without an error, a stale pooled connection | unprocessed | unprocessed |
/// | no connection could be made | not sent | not sent |
/// | a layer of this process [rejected](crate::Rejected) the call and names a wait | not sent, with the wait as the hint | the same |
/// | a layer of this process rejected the call and names no wait | fatal; transient if the attempt is a hedge | the same |
/// | a negative or malformed `grpc-retry-pushback-ms` with any status except OK | transient, with [`Hint::Never`] | the same |
/// | UNAVAILABLE without `grpc-retry-pushback-ms` | transient | unsafe |
/// | a connection that broke before the response | transient | unsafe |
/// | a timeout of the attempt | timeout | unsafe |
/// | the call's own body failed | fatal; transient if the attempt is a hedge | the same |
/// | any other status or error | fatal | fatal |
/// | OK, or a response whose status follows its body | success: the call is committed | success |
///
/// Only a status in the response head is classified. A bare HTTP status 429, 502, 503 or 504 is UNAVAILABLE (gRPC's
/// HTTP mapping). A client's errors are recognised if the crate feature for this client is enabled: see [Recognised
/// errors](crate::Http#recognised-errors).
///
/// If a call is retried, a valid `grpc-retry-pushback-ms` is the exact delay before the retry, and the backoff
/// restarts. A negative or malformed value forbids further attempts. In both cases, a wait in the verdict of a
/// `classify` rule takes precedence.
///
/// # Safe to resend
///
/// gRPC does not define which methods are idempotent. Declare them with a layer's `idempotent_methods` or
/// `idempotent_if`. A hedge layer hedges only calls of such methods. A user's rule about outcomes may change a verdict,
/// but never makes an unsafe resend safe. A safe resend needs an idempotent method, proof that the server did not
/// process the call, or a valid pushback with an error status.
///
/// # Header fields
///
/// Extra attempts carry the remaining time of a `grpc-timeout`. A hedge also carries `grpc-previous-rpc-attempts`. So
/// does a retry, unless the server is known to have processed none of the earlier attempts. No extra attempt is
/// scheduled for the end of the `grpc-timeout` or later. A `grpc-timeout` can only shorten the layer's limits. The
/// deadline of a [`RetryOverride`](crate::RetryOverride) replaces the layer's `retry_until` and `deadline`.
#[derive(Clone, Debug, Default)]
pub struct Grpc(Option<Arc<ProtocolSettings<Option<GrpcCode>>>>);

/// A borrowed view of a gRPC attempt's outcome, for rules.
pub type GrpcOutcome<'a> = OutcomeView<'a, Option<GrpcCode>>;

impl GrpcOutcome<'_> {
    /// Returns the status of the server, or the status that represents a bare HTTP status, the layer's attempt timeout,
    /// a failed connection or an HTTP/2 stream that the server reset.
    ///
    /// Returns `None` for most other errors, and for a response whose status follows its body. After an attempt
    /// timeout, a `backoff_by` rule gets the code of the outcome that `on_timeout` created, by default
    /// DEADLINE_EXCEEDED.
    #[must_use]
    pub fn code(&self) -> Option<GrpcCode> {
        self.code
    }
}

impl Sealed for Grpc {}

impl Protocol for Grpc {
    fn validate(&self) -> Result<(), BuildError> {
        self.0.as_ref().map_or(Ok(()), |all| all.validate())
    }

    fn validate_hedging(&self) -> Result<(), BuildError> {
        self.validate()?;
        if self.0.as_ref().is_some_and(|all| all.declares_idempotent()) {
            return Ok(());
        }
        let bound = "the full name of at least one method, unless `idempotent_if` is set";
        Err(BuildError::new("idempotent_methods", [""; 0], bound))
    }
}

impl Dialect for Grpc {
    type Code = Option<GrpcCode>;

    #[inline]
    fn settings(&self) -> Option<&ProtocolSettings<Option<GrpcCode>>> {
        self.0.as_deref()
    }

    fn settings_mut(&mut self) -> &mut Option<Arc<ProtocolSettings<Option<GrpcCode>>>> {
        &mut self.0
    }

    fn is_idempotent<Req: HttpRequest>(_: &Req) -> bool {
        false
    }

    fn may_hedge<Req: HttpRequest>(_: &Req, idempotent: bool) -> bool {
        idempotent
    }

    /// Reads the clock only if the request has a `grpc-timeout`.
    fn expiry<Req: HttpRequest>(request: &Req) -> Option<Deadline> {
        let timeout = timeout::parse(request.headers().get(timeout::FIELD)?)?;
        Instant::now().checked_add(timeout).map(Deadline::at)
    }

    fn mark<Req: HttpRequest>(context: &HttpContext, previous: u32, request: &mut Req) {
        // If the header map has no room, an insert changes nothing, and the request is sent all the same.
        let fields = request.headers_mut();
        if previous > 0 {
            let _ = fields.try_insert(PREVIOUS_ATTEMPTS, HeaderValue::from(previous));
        }
        if let Some(expiry) = context.expiry.and_then(Deadline::instant) {
            let remaining = expiry.saturating_duration_since(Instant::now());
            let _ = fields.try_insert(timeout::FIELD, timeout::value(remaining));
        }
    }

    fn is_success<Res: HttpResponse>(response: &Res) -> bool {
        response.status() == StatusCode::OK && !response.headers().contains_key(STATUS)
    }

    fn grpc_status<Res: HttpResponse>(response: &Res) -> Option<u16> {
        let status = response.headers().get(STATUS)?;
        Some(GrpcCode::parse(status) as u16)
    }

    fn classify_outcome<Res: HttpResponse, E: 'static>(
        &self,
        _: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Classified<Option<GrpcCode>> {
        let response = match outcome {
            Ok(response) => response,
            Err(error) => {
                let fault = Fault::of(error, false);
                let (code, other) = match fault {
                    Fault::Disconnected => (Some(GrpcCode::Unavailable), Verdict::transient()),
                    Fault::Unprocessed | Fault::NotConnected => {
                        (Some(GrpcCode::Unavailable), Verdict::Fatal)
                    }
                    Fault::Reset(reason) => (Some(code_of_reset(reason)), Verdict::Fatal),
                    Fault::Rejected(_) | Fault::Local | Fault::Unknown => (None, Verdict::Fatal),
                };
                return Classified {
                    verdict: fault.verdict(attempt, other),
                    rejected: false,
                    code,
                };
            }
        };
        let code = match (response.headers().get(STATUS), response.status()) {
            (Some(status), _) => Some(GrpcCode::parse(status)),
            // The gRPC status follows the body.
            (None, StatusCode::OK) => None,
            (None, status) => Some(GrpcCode::of_http(status)),
        };
        let hint = Self::hint(response);
        let verdict = match (code, hint) {
            (None | Some(GrpcCode::Ok), _) => Verdict::Success,
            // `Never` forbids a retry. The verdict is a retryable failure all the same, because gRPC's retry throttling
            // counts such a response (gRFC A6).
            (_, Some(Hint::Never)) | (Some(GrpcCode::Unavailable), _) => Verdict::transient(),
            (Some(GrpcCode::ResourceExhausted), Some(_)) => Verdict::throttled(),
            _ => Verdict::Fatal,
        };
        Classified {
            verdict: hint.map_or(verdict, |hint| verdict.hinted(hint)),
            // Only a pushback with a delay is a rejection. A server that forbids a retry may have processed the call.
            rejected: matches!(hint, Some(Hint::Exactly(_))) && verdict != Verdict::Success,
            code,
        }
    }

    fn timeout() -> Option<GrpcCode> {
        Some(GrpcCode::DeadlineExceeded)
    }

    fn hint<Res: HttpResponse>(response: &Res) -> Option<Hint> {
        pushback::parse(response.headers())
    }
}

/// Maps the HTTP/2 error code of a reset stream to a gRPC status ("HTTP2 Transport Mapping", Errors). REFUSED_STREAM is
/// [`Fault::Unprocessed`] instead.
fn code_of_reset(reason: u32) -> GrpcCode {
    match reason {
        CANCEL => GrpcCode::Cancelled,
        ENHANCE_YOUR_CALM => GrpcCode::ResourceExhausted,
        INADEQUATE_SECURITY => GrpcCode::PermissionDenied,
        _ => GrpcCode::Internal,
    }
}

#[cfg(test)]
mod tests;
