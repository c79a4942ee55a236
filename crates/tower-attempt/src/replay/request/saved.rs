use std::mem;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Extensions, Method, Request, Uri, Version};
use http_body::Body;

use super::fields::Fields;
use crate::replay::reader::Recording;
use crate::replay::replay_body::RecordingOf;
use crate::replay::{ReplayBody, ReplayableBody};
use crate::{Attempt, AttemptKind};

/// A request that can be repeated.
#[derive(Debug)]
pub struct SavedRequest<S: Body> {
    pub(super) head: Head,
    pub(super) content: Content<S>,
}

/// Field by field, and not a `Request`: cloned from a borrowed request, each field goes right
/// into its place, where a `Request` would be made, filled and moved on the way of every call.
#[derive(Clone, Debug)]
pub(super) struct Head {
    method: Method,
    uri: Uri,
    version: Version,
    fields: Fields,
    extensions: Extensions,
}

#[derive(Debug)]
pub(super) enum Content<S: Body> {
    Memory(Bytes),
    Recorded(RecordingOf<S>),
}

impl<S: Body> SavedRequest<S> {
    /// One without a body.
    #[inline]
    pub(super) fn new<B>(request: &Request<B>) -> Self {
        Self {
            // First: nothing can unwind while it is made, so it goes right into its place.
            head: Head::of(request),
            content: Content::Memory(Bytes::new()),
        }
    }
}

impl<S: Body<Data = Bytes> + Unpin> SavedRequest<S> {
    /// The body for a further attempt, if there may be one.
    pub(super) fn body<B: ReplayableBody<Source = S>>(&self, attempt: Attempt) -> Option<B> {
        // Its connection is about to change its protocol. Looked up only now, since looking up a header takes as
        // long as copying several.
        if self.head.fields.contains(&UPGRADE) {
            return None;
        }
        self.content.body(attempt)
    }
}

impl<S: Body<Data = Bytes> + Unpin> Content<S> {
    /// The content of a body that is not empty, which is recorded if it streams.
    ///
    /// `is_expected`: the request has `Expect: 100-continue`. Its sender waits for the first poll of the body, so there
    /// must be none before.
    pub(super) fn of<B>(body: &mut B, is_expected: bool, limit: usize) -> Self
    where
        B: ReplayableBody<Source = S>,
    {
        let content = match mem::take(body).into_memory(!is_expected) {
            Ok(content) => Self::Memory(content),
            Err(replay) => Self::Recorded(Recording::new(replay, limit)),
        };
        *body = content.body(Attempt::PRIMARY).unwrap_or_default();
        content
    }

    /// The body for an attempt, if there may be one.
    pub(super) fn body<B: ReplayableBody<Source = S>>(&self, attempt: Attempt) -> Option<B> {
        match self {
            // An empty body has nothing to share.
            Self::Memory(content) if content.is_empty() => Some(B::default()),
            Self::Memory(content) => Some(B::from_memory(content.clone())),
            Self::Recorded(recording) => {
                let others_ended = attempt.kind() == AttemptKind::Retry;
                let reader = recording.reader(others_ended, !B::can_be_interrupted())?;
                Some(B::from_replay(ReplayBody::reader(reader)))
            }
        }
    }
}

impl Head {
    // Inlined, it would be put together in one place and copied to another.
    #[inline(never)]
    fn of<B>(request: &Request<B>) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            fields: Fields::of(request.headers()),
            extensions: request.extensions().clone(),
        }
    }

    /// `None` if it has too many fields.
    pub(super) fn with<B>(self, body: B, attempt: Attempt) -> Option<Request<B>> {
        let mut request = Request::new(body);
        *request.method_mut() = self.method;
        *request.uri_mut() = self.uri;
        *request.version_mut() = self.version;
        *request.headers_mut() = self.fields.into_map()?;
        *request.extensions_mut() = self.extensions;
        mark(request.extensions_mut(), attempt);
        Some(request)
    }
}

/// A repeat of a hedge is still a hedge: otherwise a hedge layer below would hedge it again.
fn mark(extensions: &mut Extensions, attempt: Attempt) {
    let hedged = extensions
        .get::<Attempt>()
        .is_some_and(|outer| outer.kind() == AttemptKind::Hedge);
    let attempt = match hedged {
        true => Attempt::hedge(attempt.number()),
        false => attempt,
    };
    extensions.insert(attempt);
}
