mod context;
mod dialect;
pub(crate) mod fault;
mod head;
mod message;
mod nested;
mod outcome;
mod ratelimit;
mod retry_after;
mod settings;

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};

pub use self::context::HttpContext;
pub use self::dialect::Dialect;
pub(crate) use self::fault::Fault;
pub use self::head::RequestHead;
pub use self::message::{HttpRequest, HttpResponse, UrlHash};
pub(crate) use self::nested::Nested;
pub(crate) use self::outcome::Classified;
pub use self::outcome::{HttpOutcome, OutcomeView};
pub use self::settings::ProtocolSettings;
use crate::protocol::sealed::Sealed;
use crate::{Attempt, BuildError, Hint, Protocol, Verdict};

/// The header field that marks a hedge, with the attempt's number as the value. HTTP and gRPC hedge layers never hedge
/// a request that arrives with this field.
pub(crate) const HEDGE_ATTEMPT: HeaderName = HeaderName::from_static("x-hedge-attempt");

/// Trims optional whitespace (RFC 9110 §5.5) from a field's value. The h2 crate does not remove it.
pub(crate) fn trimmed(value: &HeaderValue) -> &[u8] {
    value.as_bytes().trim_ascii()
}

/// Returns the value as text if it is a plain decimal number: only digits, and at least one.
pub(crate) fn digits(value: &[u8]) -> Option<&str> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    str::from_utf8(value).ok().filter(|_| is_number)
}

/// The header field that makes a request idempotent if the value is not empty
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// The protocol HTTP.
///
/// The standard rules give each outcome a [`Verdict`]:
///
/// | outcome | idempotent request | other request |
/// |---|---|---|
/// | 429 | throttled | throttled, by default |
/// | 503 with a `Retry-After` above 0 | throttled | unsafe |
/// | 408, 504 | timeout | unsafe |
/// | 425, 500, 502, 503 | transient | unsafe |
/// | another status in the layer's `retry_statuses` | transient | unsafe |
/// | other 5xx | fatal | fatal |
/// | any other status | success | success |
/// | proof that the server did not process the request: REFUSED_STREAM, GOAWAY without an error, a stale pooled connection | unprocessed | unprocessed |
/// | no connection could be made | not sent | not sent |
/// | a layer of this process [rejected](crate::Rejected) the request and names a wait | not sent, with the wait as the hint | the same |
/// | a layer of this process rejected the request and names no wait, for example with tower's `Overloaded` or `Closed` | fatal; transient if the attempt is a hedge | the same |
/// | the request's own body failed | fatal; transient if the attempt is a hedge | the same |
/// | any other `Err` | transient | unsafe |
/// | a timeout of the attempt | timeout | unsafe |
///
/// Only the response head is classified; an error while the body streams goes to the caller.
///
/// # Safe to resend
///
/// These requests are idempotent: GET, HEAD, OPTIONS, TRACE, PUT and DELETE (RFC 9110 §9.2.2), QUERY
/// (draft-ietf-httpbis-safe-method-w-body), any request with an `Idempotency-Key` that is not empty, and the requests
/// that a layer's `idempotent_if` or `hedge_unsafe_if` selects. By default a 429 is also retried for other requests,
/// because most servers send 429 before they process a request. CONNECT and requests with `Upgrade` are sent once.
///
/// A user's rule about outcomes may change a verdict, but never makes an unsafe resend safe. A safe resend needs an
/// idempotent request, proof that the server did not process the request, or by default a 429.
///
/// # Safe to hedge
///
/// A hedge layer hedges only safe methods (GET, HEAD, OPTIONS, TRACE, QUERY) and the requests that its
/// `hedge_unsafe_if` allows. A PUT or DELETE is safe to resend but not safe to hedge. The second of two DELETEs may
/// return 404 and win, and a cancelled PUT may arrive after the caller's next PUT. A hedge is not hedged again. Layers
/// and servers recognise a hedge by the field `x-hedge-attempt`, and layers also by the [`Attempt`] in its extensions.
///
/// # Hints
///
/// `Retry-After`, in seconds or as a date, is the hint of any response that is retried, unless a user's rule names
/// another wait. If a 429 has no valid `Retry-After`, the IETF's `RateLimit` field is used instead. Malformed fields
/// are ignored.
///
/// # Recognised errors
///
/// | feature | errors |
/// |---|---|
/// | `http` | `std::io::Error` and [`Rejected`](crate::Rejected). [`Interrupted`](crate::Interrupted) and [other rejections](crate::Rejected::find) only in a box or as the source of a recognised error |
/// | `hyper-util-01` | also the errors of hyper-util 0.1's client, hyper 1 and h2 0.4 |
/// | `reqwest-013`, `tonic-014` | also the errors of reqwest 0.13, or of tonic 0.14 |
///
/// Unless the table says otherwise, an error is recognised directly, in a `Box<dyn Error + Send>` or `Box<dyn Error +
/// Send + Sync>`, inside an error of a [registered](crate::WrapsError::register) type, and among the sources of a boxed
/// or recognised error.
///
/// An unknown error proves nothing: it counts as "any other `Err`", and only an idempotent request is resent. So
/// without the client's feature, a request that failed on a stale pooled connection is resent only if it is idempotent.
/// If a GOAWAY closes a connection on which a request still waits for a free stream, hyper's error does not name the
/// GOAWAY. So such a request, too, is resent only if it is idempotent.
///
/// # Redirects
///
/// The layer assumes that an outcome belongs to the request that it sent. A client that follows redirects breaks this
/// assumption, because it sends further requests. reqwest's client does so by default, and its errors do not say which
/// request failed. So none of its errors proves that the server did not process the request, unless the layer is built
/// with `without_redirects`. A 429 of reqwest makes a resend safe only if the response came from the URL of the
/// request. Put the retry layer below any other service that sends requests of its own, such as tower-http's
/// `FollowRedirect`.
#[derive(Clone, Debug, Default)]
pub struct Http(Option<Arc<ProtocolSettings<()>>>);

/// Whether the request has an `Idempotency-Key` that is not empty.
fn has_key(fields: &HeaderMap) -> bool {
    let key = fields.get(IDEMPOTENCY_KEY);
    key.is_some_and(|key| !trimmed(key).is_empty())
}

impl Sealed for Http {}

impl Protocol for Http {
    fn validate(&self) -> Result<(), BuildError> {
        self.0.as_ref().map_or(Ok(()), |all| all.validate())
    }
}

impl Dialect for Http {
    type Code = ();

    #[inline]
    fn settings(&self) -> Option<&ProtocolSettings<()>> {
        self.0.as_deref()
    }

    fn settings_mut(&mut self) -> &mut Option<Arc<ProtocolSettings<()>>> {
        &mut self.0
    }

    #[inline]
    fn prepare<Req: HttpRequest>(&self, request: &mut Req) {
        let generate = self.settings().and_then(|all| all.generate_key.as_ref());
        let Some(generate) = generate else { return };
        let method = request.method();
        if !method.is_idempotent() && method != Method::CONNECT && !has_key(request.headers()) {
            // If the header map has no room for the key, the request is sent without the generated key.
            let _ = request
                .headers_mut()
                .try_insert(IDEMPOTENCY_KEY, generate());
        }
    }

    #[inline]
    fn is_idempotent<Req: HttpRequest>(request: &Req) -> bool {
        request.method().is_idempotent() || has_key(request.headers())
    }

    #[inline]
    fn may_hedge<Req: HttpRequest>(request: &Req, _: bool) -> bool {
        request.method().is_safe()
    }

    #[inline]
    fn is_success<Res: HttpResponse>(response: &Res) -> bool {
        let status = response.status();
        let is_retried = matches!(
            status,
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
        );
        !(is_retried || status.is_server_error())
    }

    fn classify_outcome<Res: HttpResponse, E: 'static>(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Classified<()> {
        let settings = self.settings();
        let response = match outcome {
            Ok(response) => response,
            Err(error) => {
                let no_redirects = settings.is_some_and(|all| all.no_redirects);
                let fault = Fault::of(error, context.url_hash.is_some() && !no_redirects);
                return Classified {
                    verdict: fault.verdict(attempt, Verdict::transient()),
                    rejected: false,
                    code: (),
                };
            }
        };
        let (status, hint) = (response.status(), Self::hint(response));
        let verdict = match status {
            StatusCode::TOO_MANY_REQUESTS => Verdict::throttled(),
            StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Verdict::timeout(),
            // `Retry-After: 0` does not ask for less load.
            StatusCode::SERVICE_UNAVAILABLE
                if hint.is_some_and(|hint| hint != Hint::AtLeast(Duration::ZERO)) =>
            {
                Verdict::throttled()
            }
            StatusCode::TOO_EARLY
            | StatusCode::INTERNAL_SERVER_ERROR
            | StatusCode::BAD_GATEWAY
            | StatusCode::SERVICE_UNAVAILABLE => Verdict::transient(),
            _ if settings.is_some_and(|all| all.retry_statuses.contains(&status)) => {
                Verdict::transient()
            }
            _ if Self::is_success(response) => Verdict::Success,
            _ => Verdict::Fatal,
        };
        Classified {
            verdict: hint.map_or(verdict, |hint| verdict.hinted(hint)),
            rejected: status == StatusCode::TOO_MANY_REQUESTS
                && settings.is_none_or(|all| !all.retry_429_for_idempotent_only)
                && response.url_hash() == context.url_hash,
            code: (),
        }
    }

    fn hint<Res: HttpResponse>(response: &Res) -> Option<Hint> {
        let fields = response.headers();
        let wait = match (retry_after::parse(fields), response.status()) {
            // Only with a 429, `RateLimit` replaces a missing or malformed `Retry-After`.
            (None, StatusCode::TOO_MANY_REQUESTS) => ratelimit::parse(fields),
            (wait, _) => wait,
        };
        wait.map(Hint::AtLeast)
    }
}

#[cfg(test)]
mod tests;
