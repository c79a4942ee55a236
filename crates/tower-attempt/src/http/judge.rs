use std::time::Duration;

use http::StatusCode;

use super::{Fault, HttpContext, HttpResponse, Judged, Settings, ratelimit, retry_after};
use crate::{Attempt, AttemptKind, Verdict};

/// Classifies an error.
pub(super) fn judge_error<E: 'static>(error: &E, redirects: bool, attempt: &Attempt) -> Judged<()> {
    let verdict = match Fault::of(error, redirects) {
        Fault::Unprocessed => Verdict::Unprocessed,
        Fault::NotConnected => Verdict::not_sent(),
        Fault::Rejected(rejected) => rejected.verdict(attempt),
        // A hedge that was never sent, or that a sibling's progress has cut off, has no outcome.
        Fault::Local if attempt.kind() != AttemptKind::Hedge => Verdict::Fatal,
        _ => Verdict::transient(),
    };
    Judged {
        verdict,
        rejected: false,
        code: (),
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

/// Classifies a response.
pub(super) fn judge_answer<Res: HttpResponse>(
    response: &Res,
    context: &HttpContext,
    settings: Option<&Settings<()>>,
) -> Judged<()> {
    let status = response.status();
    let hint = hint(response);
    let is_listed = |all: &Settings<()>| all.retry_statuses.contains(&status);
    let verdict = match status {
        StatusCode::TOO_MANY_REQUESTS => Verdict::throttled(),
        StatusCode::REQUEST_TIMEOUT | StatusCode::GATEWAY_TIMEOUT => Verdict::timeout(),
        // `Retry-After: 0` is no demand for less load.
        StatusCode::SERVICE_UNAVAILABLE if hint.is_some_and(|wait| !wait.is_zero()) => {
            Verdict::throttled()
        }
        StatusCode::TOO_EARLY
        | StatusCode::INTERNAL_SERVER_ERROR
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE => Verdict::transient(),
        _ if settings.is_some_and(is_listed) => Verdict::transient(),
        _ if is_success(status) => Verdict::Success,
        _ => Verdict::Fatal,
    };
    let spare_429 = settings.is_some_and(|all| all.spare_429);
    Judged {
        verdict: hint.map_or(verdict, |hint| verdict.after(hint)),
        rejected: status == StatusCode::TOO_MANY_REQUESTS
            && !spare_429
            && response.target() == context.target,
        code: (),
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
