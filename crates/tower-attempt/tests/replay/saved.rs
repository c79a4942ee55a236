//! Requests of which only the body matters.

use http::Request;
use tower_attempt::{Attempt, ReplayBody, ReplayableBody, ReplayableRequest};

use crate::script::Script;

/// What further attempts on a body are made from.
pub(crate) struct Saved<B: ReplayableBody>(<Request<B> as ReplayableRequest>::Saved);

/// The first attempt's body, and what others are made from.
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
    let request = Request::last(saved.0, attempt)?;
    Some(request.into_body())
}

/// A script's first attempt.
pub(crate) fn scripted(
    script: Script,
    limit: usize,
) -> (ReplayBody<Script>, Saved<ReplayBody<Script>>) {
    first(ReplayBody::new(script), limit)
}
