mod message;
mod outcome;
mod ratelimit;
mod retry_after;

use http::header::{IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE};
use http::{HeaderName, Method, StatusCode};

pub use self::message::{HttpRequest, HttpResponse};
pub use self::outcome::HttpOutcome;
use crate::{Attempt, AttemptKind, Classify, Deadline, Verdict};

/// The request header that makes any method safe to repeat
/// (draft-ietf-httpapi-idempotency-key-header).
const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// What makes an answer depend on an earlier attempt's effect.
const PRECONDITIONS: [HeaderName; 3] = [IF_MATCH, IF_NONE_MATCH, IF_UNMODIFIED_SINCE];

/// The rules for HTTP.
///
/// | | idempotent request | other request |
/// |---|---|---|
/// | 429 | throttled | throttled |
/// | 503 with `Retry-After` | throttled | fatal |
/// | 408, 504 | timeout | fatal |
/// | 425, 500, 502, 503 | transient | fatal |
/// | other 5xx | fatal | fatal |
/// | any other status | success | success |
/// | `Err` | transient | fatal |
///
/// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and DELETE (RFC 9110 §9.2.2), and any request
/// with an `Idempotency-Key`. A 429 is repeated for every method, since a server refuses before it
/// processes. CONNECT and switched protocols are left alone, and [`ByBody`](crate::ByBody) copies no
/// request with `Upgrade`.
///
/// Hedged are requests of idempotent methods that are no hedge already. An `Idempotency-Key` makes a
/// request safe to send again, but not safe to send twice at once: the draft has a server answer 409
/// to the second while it works on the first, and the 409 would win. For the same reason PUT and
/// DELETE with a precondition (`If-Match`, `If-None-Match`, `If-Unmodified-Since`) are not hedged: the
/// second may fail it because the first succeeded.
///
/// `Retry-After`, in seconds or as a date, is the hint of any answer that is to be repeated; a 429
/// without one may have the IETF's `RateLimit` field. Malformed ones are ignored. Success is judged at the response head: a body that breaks later is the caller's.
///
/// `F` is a closure that has the last word, or [`Standard`].
#[derive(Clone, Copy, Debug)]
pub struct HttpClassify<F = Standard>(F);

// Not derived: a single implementation tells the compiler what `HttpClassify::default()` is.
impl Default for HttpClassify {
    fn default() -> Self {
        Self(Standard)
    }
}

/// Has nothing to add to the rules of [`HttpClassify`].
#[derive(Clone, Copy, Debug)]
pub struct Standard;

/// What [`HttpClassify`] remembers of a request.
#[derive(Clone, Copy, Debug)]
pub struct HttpContext {
    idempotent: bool,
    connect: bool,
    hedgeable: bool,
    deadline: Option<Deadline>,
}

impl HttpContext {
    #[inline]
    fn new<Req: HttpRequest>(request: &Req) -> Self {
        let (method, headers) = (request.method(), request.headers());
        let is_safe = method.is_safe();
        let by_method = is_safe || method.is_idempotent();
        let is_hedge = |attempt: Attempt| attempt.kind() == AttemptKind::Hedge;
        let conditional = || PRECONDITIONS.iter().any(|name| headers.contains_key(name));
        Self {
            idempotent: by_method || headers.contains_key(IDEMPOTENCY_KEY),
            connect: method == Method::CONNECT,
            hedgeable: by_method
                && (is_safe || !conditional())
                && !request.attempt().is_some_and(is_hedge),
            deadline: request.deadline(),
        }
    }

    fn may_repeat(self) -> bool {
        !self.connect
    }

    fn may_hedge(self) -> bool {
        self.hedgeable
    }
}

impl<F> HttpClassify<F>
where
    F: Fn(HttpOutcome<'_>) -> Verdict,
{
    /// Asks `classify`, which sees what the rules say beside the outcome.
    pub const fn with(classify: F) -> Self {
        Self(classify)
    }
}

/// Who has the last word on an outcome.
pub trait LastWord {
    /// The final verdict, where the rules say `verdict`.
    fn say<Res: HttpResponse, E: 'static>(
        &self,
        outcome: &Result<Res, E>,
        verdict: Verdict,
    ) -> Verdict;
}

impl LastWord for Standard {
    fn say<Res: HttpResponse, E: 'static>(&self, _: &Result<Res, E>, verdict: Verdict) -> Verdict {
        verdict
    }
}

impl<F: Fn(HttpOutcome<'_>) -> Verdict> LastWord for F {
    fn say<Res: HttpResponse, E: 'static>(
        &self,
        outcome: &Result<Res, E>,
        verdict: Verdict,
    ) -> Verdict {
        self(HttpOutcome::new(outcome, verdict))
    }
}

impl<F, Req, Res, E> Classify<Req, Res, E> for HttpClassify<F>
where
    F: LastWord,
    Req: HttpRequest,
    Res: HttpResponse,
    E: 'static,
{
    type Context = HttpContext;

    fn context(&self, request: &Req) -> HttpContext {
        HttpContext::new(request)
    }

    fn may_repeat(&self, context: &HttpContext) -> bool {
        context.may_repeat()
    }

    fn may_hedge(&self, context: &HttpContext) -> bool {
        context.may_hedge()
    }

    fn deadline(&self, context: &HttpContext) -> Option<Deadline> {
        context.deadline
    }

    fn classify(&self, context: &HttpContext, _: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        self.0.say(outcome, judge(*context, outcome))
    }

    fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
        if let Ok(response) = outcome {
            response.extensions_mut().insert(info);
        }
    }
}

fn judge<Res: HttpResponse, E>(context: HttpContext, outcome: &Result<Res, E>) -> Verdict {
    let Ok(response) = outcome else {
        return match context.idempotent {
            true => Verdict::transient(),
            false => Verdict::Fatal,
        };
    };
    let status = response.status();
    let retry_after = || retry_after::parse(response.headers());
    let verdict = match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::throttled(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Verdict::timeout(),
        StatusCode::SERVICE_UNAVAILABLE if retry_after().is_some() => Verdict::throttled(),
        StatusCode::TOO_EARLY
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE => Verdict::transient(),
        _ if status.is_server_error() => return Verdict::Fatal,
        _ => return Verdict::Success,
    };
    if !context.idempotent && status != StatusCode::TOO_MANY_REQUESTS {
        return Verdict::Fatal;
    }
    let hint = match (retry_after(), status) {
        // Elsewhere it tells when the quota is whole again, which is no reason to wait.
        (None, StatusCode::TOO_MANY_REQUESTS) => ratelimit::parse(response.headers()),
        (hint, _) => hint,
    };
    match hint {
        Some(hint) => verdict.after(hint),
        None => verdict,
    }
}

#[cfg(test)]
mod tests;
