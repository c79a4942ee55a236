//! Requests for tests that look only at the body.

use http::Request;
use tower_attempt::{Attempt, ReplayBody, ReplayableBody, ReplayableRequest};

use crate::script::Script;

/// The source of further attempts.
pub(crate) struct Saved<B: ReplayableBody>(<Request<B> as ReplayableRequest>::Saved);

/// Returns the body of the first attempt, and the source of further attempts.
pub(crate) fn first<B: ReplayableBody>(body: B, limit: usize) -> (B, Saved<B>) {
    let mut request = Request::new(body);
    let saved = request.save(limit).unwrap();
    (request.into_body(), Saved(saved))
}

pub(crate) fn again<B: ReplayableBody>(saved: &Saved<B>, attempt: Attempt) -> Option<B> {
    let request = Request::again(&saved.0, attempt)?;
    Some(request.into_body())
}

pub(crate) fn last<B: ReplayableBody>(saved: Saved<B>, attempt: Attempt) -> Option<B> {
    let request = Request::again(&saved.0, attempt)?;
    Some(request.into_body())
}

/// Returns the first attempt of a script.
pub(crate) fn scripted(
    script: Script,
    limit: usize,
) -> (ReplayBody<Script>, Saved<ReplayBody<Script>>) {
    first(ReplayBody::new(script), limit)
}
