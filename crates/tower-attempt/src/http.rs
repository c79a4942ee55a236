mod context;
mod fault;
mod idempotency_key;
mod judge;
mod message;
mod nested;
mod outcome;
mod ratelimit;
mod retry_after;

use http::{HeaderName, HeaderValue};

pub use self::context::HttpContext;
pub(crate) use self::fault::Fault;
pub use self::idempotency_key::GenerateKey;
use self::judge::{hint, is_success, judge_answer, judge_error};
pub use self::message::{HttpRequest, HttpResponse, Target};
pub(crate) use self::nested::Nested;
pub use self::outcome::HttpOutcome;
use crate::{Attempt, AttemptKind, AttemptTimeout, Classify, Deadline, Verdict};

/// Says across the network that a request is a hedge, with the attempt's number: who gets one and passes
/// it on does not hedge it again.
pub(crate) const HEDGE_ATTEMPT: HeaderName = HeaderName::from_static("x-hedge-attempt");

/// A field's value without the optional whitespace around it (RFC 9110 §5.5), which arrives over HTTP/2.
pub(crate) fn trimmed(value: &HeaderValue) -> &[u8] {
    value.as_bytes().trim_ascii()
}

/// Whether the request is a hedge of a client that sent it here.
pub(crate) fn is_hedge<Req: HttpRequest>(request: &Req) -> bool {
    request.headers().contains_key(HEDGE_ATTEMPT)
}

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
/// | proof that the server did not process it: REFUSED_STREAM, GOAWAY, a stale pooled connection | unprocessed | unprocessed |
/// | no connection could be made | not sent | not sent |
/// | an error of this side: the request's body, tower's `Overloaded` and `Closed` | fatal | fatal |
/// | any other `Err` | transient | fatal |
///
/// Idempotent are GET, HEAD, OPTIONS, TRACE, PUT and DELETE (RFC 9110 §9.2.2), QUERY
/// (draft-ietf-httpbis-safe-method-w-body), and any request with an `Idempotency-Key`. A 429 is repeated
/// for every method, since a server refuses before it processes. CONNECT and switched protocols are left alone, and [`ByBody`](crate::ByBody) copies no
/// request with `Upgrade`.
///
/// Hedged are requests of idempotent methods that are no hedge already, neither by the
/// [`Attempt`](crate::Attempt) in their extensions nor by the field `x-hedge-attempt`, which hedges carry
/// across the network. An `Idempotency-Key` makes a
/// request safe to send again, but not safe to send twice at once: the draft has a server answer 409
/// to the second while it works on the first, and the 409 would win. For the same reason PUT and
/// DELETE with a precondition (`If-Match`, `If-None-Match`, `If-Unmodified-Since`) are not hedged: the
/// second may fail it because the first succeeded.
///
/// `Retry-After`, in seconds or as a date, is the hint of any answer that is to be repeated; a 429
/// without one may have the IETF's `RateLimit` field. Malformed ones are ignored. Success is judged at the
/// response head: a body that breaks later is the caller's.
///
/// An answer is taken as one to this request. A client that follows redirects has sent others since.
/// reqwest's does by default, and its errors don't say where they happened: none of them is proof unless
/// the client is [`without_redirects`](Self::without_redirects), and a 429 counts only where the request
/// was not redirected. Put retries below any other service that sends requests of its own.
///
/// `F` is a closure that has the last word, or [`Standard`].
#[derive(Clone, Copy, Debug)]
pub struct HttpClassify<F = Standard> {
    last_word: F,
    spare_429: bool,
    no_redirects: bool,
}

// Not derived: a single implementation tells the compiler what `HttpClassify::default()` is.
impl Default for HttpClassify {
    fn default() -> Self {
        Self {
            last_word: Standard,
            spare_429: false,
            no_redirects: false,
        }
    }
}

/// Has nothing to add to the rules of [`HttpClassify`].
#[derive(Clone, Copy, Debug)]
pub struct Standard;

impl<F> HttpClassify<F> {
    /// Repeats a 429 only where any other failure would be repeated: for servers that answer 429 after
    /// they have begun to work.
    #[must_use]
    pub fn retry_429_for_idempotent_only(self) -> Self {
        Self {
            spare_429: true,
            ..self
        }
    }

    /// The client below follows no redirects, so that its errors are about the request that it was given
    /// and can be proof. Matters for clients that follow them by default, which is reqwest's.
    #[must_use]
    pub fn without_redirects(self) -> Self {
        Self {
            no_redirects: true,
            ..self
        }
    }

    /// Asks `classify`, which sees what the rules say beside the outcome.
    pub fn last_word<G>(self, classify: G) -> HttpClassify<G>
    where
        G: Fn(HttpOutcome<'_>) -> Verdict,
    {
        HttpClassify {
            last_word: classify,
            spare_429: self.spare_429,
            no_redirects: self.no_redirects,
        }
    }

    /// What the rules say of an outcome that may be a failure.
    #[cold]
    #[inline(never)]
    fn judge_failure<Res: HttpResponse, E: 'static>(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict
    where
        F: LastWord,
    {
        let verdict = match outcome {
            Ok(response) => judge_answer(response, context, self.spare_429),
            Err(error) => {
                let redirects = context.target.is_some() && !self.no_redirects;
                judge_error(error, context.idempotent, redirects, attempt)
            }
        };
        self.close(outcome, verdict)
    }

    /// The verdict, once the last word is said.
    #[inline]
    fn close<Res: HttpResponse, E: 'static>(
        &self,
        outcome: &Result<Res, E>,
        verdict: Verdict,
    ) -> Verdict
    where
        F: LastWord,
    {
        let verdict = self.last_word.say(outcome, verdict);
        if let (Verdict::Retry { hint: None, .. }, Ok(response)) = (verdict, outcome)
            && let Some(floor) = hint(response)
        {
            // Where a closure wants a repeat, what the server says of it counts all the same.
            return verdict.after(floor);
        }
        verdict
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
    #[inline]
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

    #[inline]
    fn context(&self, request: &Req) -> HttpContext {
        HttpContext::new(request)
    }

    fn may_repeat(&self, context: &HttpContext) -> bool {
        context.may_repeat()
    }

    fn may_hedge(&self, context: &HttpContext, request: &Req) -> bool {
        context.may_hedge() && !is_hedge(request)
    }

    fn deadline(&self, context: &HttpContext) -> Option<Deadline> {
        context.deadline
    }

    fn attempt_timeout(&self, context: &HttpContext) -> Option<AttemptTimeout> {
        context.attempt_timeout
    }

    fn repeat(&self, context: &mut HttpContext, attempt: Attempt, _: u32, request: &mut Req) {
        match attempt.kind() {
            AttemptKind::Retry => context.nested.mark(request),
            AttemptKind::Hedge => {
                let number = HeaderValue::from(attempt.number());
                // Full to the brim of 32,768 fields: then without.
                let _ = request.headers_mut().try_insert(HEDGE_ATTEMPT, number);
            }
            AttemptKind::Primary => {}
        }
    }

    #[inline]
    fn classify(
        &self,
        context: &HttpContext,
        attempt: &Attempt,
        outcome: &Result<Res, E>,
    ) -> Verdict {
        match outcome {
            Ok(response) if is_success(response.status()) => self.close(outcome, Verdict::Success),
            _ => self.judge_failure(context, attempt, outcome),
        }
    }

    /// Nobody knows how far the server got.
    fn timed_out(&self, context: &HttpContext, _: &Attempt, answer: &Result<Res, E>) -> Verdict {
        let verdict = match context.idempotent {
            true => Verdict::timeout(),
            false => Verdict::Fatal,
        };
        self.last_word.say(answer, verdict)
    }

    fn is_repeated_above(&self, context: &HttpContext) -> bool {
        context.nested.is_repeated_above()
    }

    fn was_given_up(&self, context: &mut HttpContext, outcome: &Result<Res, E>) -> bool {
        context.nested.was_given_up(outcome)
    }

    fn give_up(&self, context: &HttpContext, outcome: &mut Result<Res, E>) {
        context.nested.give_up(outcome);
    }

    fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
        if let Ok(response) = outcome {
            response.extensions_mut().insert(info);
        }
    }
}

#[cfg(test)]
mod tests;
