mod answer;
mod by_message;
mod code;
mod context;
mod outcome;
mod pushback;
mod timeout;

use std::sync::Arc;

use h2::Reason;
use http::{HeaderName, HeaderValue, StatusCode};

pub(crate) use self::answer::deadline_exceeded;
pub use self::by_message::ByMessage;
pub use self::code::GrpcCode;
pub use self::context::GrpcContext;
pub use self::outcome::GrpcOutcome;
use crate::http::{Fault, HEDGE_ATTEMPT, HttpRequest, HttpResponse, is_hedge};
use crate::{Attempt, AttemptKind, AttemptTimeout, Classify, Deadline, Hint, Standard, Verdict};

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// The rules for gRPC, as gRFC A6 has them.
///
/// | outcome | verdict |
/// |---|---|
/// | UNAVAILABLE | transient |
/// | RESOURCE_EXHAUSTED with `grpc-retry-pushback-ms` | throttled |
/// | proof that the server did not see the call: REFUSED_STREAM, GOAWAY, a stale pooled connection | unprocessed |
/// | no connection could be made | not sent |
/// | a connection that broke before an answer | transient |
/// | any other status or error | fatal |
/// | a response with a body | success: the call is committed |
///
/// A status counts where it comes without a body: in the header of the response. A bare HTTP status
/// 429, 502, 503 or 504 is UNAVAILABLE (gRPC's HTTP mapping). `grpc-retry-pushback-ms` is the exact
/// delay before the next attempt, whose backoff starts anew; negative or unparsable, there is none.
///
/// Extra attempts carry `grpc-previous-rpc-attempts`, and what is left of a `grpc-timeout`; none is
/// decided on that would go out when nothing is left. A `grpc-timeout` only shortens what the layer is
/// set to; a [`Deadline`] in the request's extensions replaces it.
///
/// gRPC does not say which methods are idempotent, so an attempt that took too long is not repeated,
/// and no call is hedged, but those of [`idempotent_methods`](Self::idempotent_methods).
///
/// `F` is a closure that has the last word, or [`Standard`].
#[derive(Clone, Debug)]
pub struct GrpcClassify<F = Standard> {
    last_word: F,
    idempotent: Option<Arc<[String]>>,
}

// Not derived: a single implementation tells the compiler what `GrpcClassify::default()` is.
impl Default for GrpcClassify {
    fn default() -> Self {
        Self {
            last_word: Standard,
            idempotent: None,
        }
    }
}

impl<F> GrpcClassify<F> {
    /// Methods that may run more than once for one call, by their full names, such as
    /// `/helloworld.Greeter/SayHello`; the slash in front may be missing, as where gRPC's own libraries
    /// write them.
    #[must_use]
    pub fn idempotent_methods<T: Into<String>>(self, paths: impl IntoIterator<Item = T>) -> Self {
        let with_slash = |path: T| match path.into() {
            path if path.starts_with('/') => path,
            name => format!("/{name}"),
        };
        Self {
            idempotent: Some(paths.into_iter().map(with_slash).collect()),
            ..self
        }
    }

    /// Asks `classify`, which sees what the rules say beside the outcome.
    pub fn last_word<G>(self, classify: G) -> GrpcClassify<G>
    where
        G: Fn(GrpcOutcome<'_>) -> Verdict,
    {
        GrpcClassify {
            last_word: classify,
            idempotent: self.idempotent,
        }
    }

    fn is_idempotent(&self, path: &str) -> bool {
        let listed = |paths: &Arc<[String]>| paths.iter().any(|listed| listed == path);
        self.idempotent.as_ref().is_some_and(listed)
    }
}

/// Who has the last word on an outcome.
pub trait LastWord {
    /// The final verdict, where the rules say `verdict`.
    fn say<E: 'static>(
        &self,
        code: Option<GrpcCode>,
        error: Option<&E>,
        verdict: Verdict,
    ) -> Verdict;
}

impl LastWord for Standard {
    fn say<E: 'static>(&self, _: Option<GrpcCode>, _: Option<&E>, verdict: Verdict) -> Verdict {
        verdict
    }
}

impl<F: Fn(GrpcOutcome<'_>) -> Verdict> LastWord for F {
    fn say<E: 'static>(
        &self,
        code: Option<GrpcCode>,
        error: Option<&E>,
        verdict: Verdict,
    ) -> Verdict {
        self(GrpcOutcome::new(code, error, verdict))
    }
}

impl<F, Req, Res, E> Classify<Req, Res, E> for GrpcClassify<F>
where
    F: LastWord,
    Req: HttpRequest,
    Res: HttpResponse,
    E: 'static,
{
    type Context = GrpcContext;

    fn context(&self, request: &Req) -> GrpcContext {
        GrpcContext::new(request, self.is_idempotent(request.path()))
    }

    fn may_hedge(&self, context: &GrpcContext, request: &Req) -> bool {
        context.idempotent && !context.is_hedge && !is_hedge(request)
    }

    fn deadline(&self, context: &GrpcContext) -> Option<Deadline> {
        context.deadline
    }

    fn expiry(&self, context: &GrpcContext) -> Option<Deadline> {
        context.expiry
    }

    fn attempt_timeout(&self, context: &GrpcContext) -> Option<AttemptTimeout> {
        context.attempt_timeout
    }

    fn repeat(
        &self,
        context: &mut GrpcContext,
        attempt: Attempt,
        previous: u32,
        request: &mut Req,
    ) {
        if attempt.kind() == AttemptKind::Retry {
            context.nested.mark(request);
        }
        // Full to the brim of 32,768 fields: then without.
        let fields = request.headers_mut();
        if attempt.kind() == AttemptKind::Hedge {
            let _ = fields.try_insert(HEDGE_ATTEMPT, HeaderValue::from(attempt.number()));
        }
        if previous > 0 {
            let _ = fields.try_insert(PREVIOUS_ATTEMPTS, HeaderValue::from(previous));
        }
        if let Some(left) = context.time_left() {
            let _ = fields.try_insert(timeout::FIELD, timeout::value(left));
        }
    }

    fn classify(&self, _: &GrpcContext, attempt: &Attempt, outcome: &Result<Res, E>) -> Verdict {
        let (code, verdict) = match outcome {
            Ok(response) => judge_answer(response),
            Err(error) => judge_error(error, attempt),
        };
        let verdict = self.last_word.say(code, outcome.as_ref().err(), verdict);
        if let (Verdict::Retry { hint: None, .. }, Ok(response)) = (verdict, outcome)
            && let Some(hint) = pushback::parse(response.headers())
        {
            // Where a closure wants a repeat, what the server says of it counts all the same.
            return verdict.hinted(hint);
        }
        verdict
    }

    /// Nobody knows how far the server got.
    fn timed_out(&self, context: &GrpcContext, _: &Attempt, answer: &Result<Res, E>) -> Verdict {
        let verdict = match context.idempotent {
            true => Verdict::timeout(),
            false => Verdict::Fatal,
        };
        let code = Some(GrpcCode::DeadlineExceeded);
        self.last_word.say(code, answer.as_ref().err(), verdict)
    }

    fn is_repeated_above(&self, context: &GrpcContext) -> bool {
        context.nested.is_repeated_above()
    }

    fn was_given_up(&self, context: &mut GrpcContext, outcome: &Result<Res, E>) -> bool {
        context.nested.was_given_up(outcome)
    }

    fn give_up(&self, context: &GrpcContext, outcome: &mut Result<Res, E>) {
        context.nested.give_up(outcome);
    }

    fn attach<T: Clone + Send + Sync + 'static>(&self, outcome: &mut Result<Res, E>, info: T) {
        if let Ok(response) = outcome {
            response.extensions_mut().insert(info);
        }
    }
}

fn judge_answer<Res: HttpResponse>(response: &Res) -> (Option<GrpcCode>, Verdict) {
    let code = match (response.headers().get(STATUS), response.status()) {
        (Some(status), _) => GrpcCode::parse(status),
        // The status comes after the body.
        (None, StatusCode::OK) => return (None, Verdict::Success),
        (None, status) => GrpcCode::of_http(status),
    };
    let pushback = pushback::parse(response.headers());
    let verdict = match (code, pushback) {
        (GrpcCode::Ok, _) => Verdict::Success,
        // Not to be repeated whatever it is, and a failure to a throttle.
        (_, Some(hint @ Hint::Never)) => Verdict::transient().hinted(hint),
        (GrpcCode::Unavailable, Some(hint)) => Verdict::transient().hinted(hint),
        (GrpcCode::Unavailable, None) => Verdict::transient(),
        (GrpcCode::ResourceExhausted, Some(hint)) => Verdict::throttled().hinted(hint),
        _ => Verdict::Fatal,
    };
    (Some(code), verdict)
}

fn judge_error<E: 'static>(error: &E, attempt: &Attempt) -> (Option<GrpcCode>, Verdict) {
    match Fault::of(error, false) {
        Fault::Unprocessed => (Some(GrpcCode::Unavailable), Verdict::Unprocessed),
        Fault::NotConnected => (Some(GrpcCode::Unavailable), Verdict::not_sent()),
        Fault::Disconnected => (Some(GrpcCode::Unavailable), Verdict::transient()),
        Fault::Reset(reason) => (Some(code_of_reset(reason)), Verdict::Fatal),
        // A hedge that was never sent, or that a sibling's progress has cut off, is no answer.
        Fault::Local if attempt.kind() == AttemptKind::Hedge => (None, Verdict::transient()),
        Fault::Local | Fault::Unknown => (None, Verdict::Fatal),
    }
}

/// gRPC over HTTP/2, "HTTP2 Transport Mapping", Errors.
fn code_of_reset(reason: Reason) -> GrpcCode {
    match reason {
        Reason::CANCEL => GrpcCode::Cancelled,
        Reason::ENHANCE_YOUR_CALM => GrpcCode::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => GrpcCode::PermissionDenied,
        _ => GrpcCode::Internal,
    }
}

#[cfg(test)]
mod tests;
