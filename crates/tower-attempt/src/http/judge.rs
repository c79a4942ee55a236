use std::time::Duration;

use http::StatusCode;

use super::{Fault, HttpContext, HttpResponse, ratelimit, retry_after};
use crate::{Attempt, AttemptKind, Verdict};

/// What an error means.
pub(super) fn judge_error<E: 'static>(
    error: &E,
    idempotent: bool,
    redirects: bool,
    attempt: &Attempt,
) -> Verdict {
    match Fault::of(error, redirects) {
        Fault::Unprocessed => Verdict::Unprocessed,
        Fault::NotConnected => Verdict::not_sent(),
        // A hedge that was never sent, or that a sibling's progress has cut off, is no answer.
        Fault::Local if attempt.kind() != AttemptKind::Hedge => Verdict::Fatal,
        _ if idempotent => Verdict::transient(),
        _ => Verdict::Fatal,
    }
}

/// Whether an answer with this status is one to pass on, without a look at the rest of it.
#[inline]
pub(super) fn is_success(status: StatusCode) -> bool {
    let is_refusal = matches!(
        status,
        StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS
    );
    !(is_refusal || status.is_server_error())
}

/// What an answer means.
pub(super) fn judge_answer<Res: HttpResponse>(
    response: &Res,
    context: &HttpContext,
    spare_429: bool,
) -> Verdict {
    let status = response.status();
    let hint = hint(response);
    let verdict = match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::throttled(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Verdict::timeout(),
        StatusCode::SERVICE_UNAVAILABLE if hint.is_some() => Verdict::throttled(),
        StatusCode::TOO_EARLY
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE => Verdict::transient(),
        _ if is_success(status) => return Verdict::Success,
        _ => return Verdict::Fatal,
    };
    let is_refused = || {
        let is_refusal = status == StatusCode::TOO_MANY_REQUESTS && !spare_429;
        is_refusal && response.target() == context.target
    };
    if !(context.idempotent || is_refused()) {
        return Verdict::Fatal;
    }
    match hint {
        Some(hint) => verdict.after(hint),
        None => verdict,
    }
}

/// How long the server asks to wait with a repeat.
pub(super) fn hint<Res: HttpResponse>(response: &Res) -> Option<Duration> {
    let fields = response.headers();
    match (retry_after::parse(fields), response.status()) {
        // Elsewhere it tells when the quota is whole again, which is no reason to wait.
        (None, StatusCode::TOO_MANY_REQUESTS) => ratelimit::parse(fields),
        (hint, _) => hint,
    }
}
