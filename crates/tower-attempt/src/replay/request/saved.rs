use std::mem;

use bytes::Bytes;
use http::header::UPGRADE;
use http::{Extensions, HeaderName, HeaderValue, Method, Request, Uri, Version};
use http_body::Body;

use crate::replay::reader::Recording;
use crate::replay::replay_body::RecordingOf;
use crate::replay::{ReplayBody, ReplayableBody};
use crate::{Attempt, AttemptKind};

/// The copy of a request, from which further attempts are made. Not every copy can be resent.
// The parts are cloned one by one from the borrowed request, straight into this struct. If the struct held a `Request`
// instead, every call would create an empty `Request`, fill it with the clones and move it here.
#[derive(Debug)]
pub struct SavedRequest<S: Body> {
    method: Method,
    uri: Uri,
    version: Version,
    /// The header fields. Unless there are none, a list takes one allocation, and the clone of a map at least two.
    fields: Vec<(HeaderName, HeaderValue)>,
    extensions: Extensions,
    pub(super) content: Content<S>,
}

#[derive(Debug)]
pub(super) enum Content<S: Body> {
    Memory(Bytes),
    Recorded(RecordingOf<S>),
}

impl<S: Body<Data = Bytes> + Unpin> SavedRequest<S> {
    // If this were inlined, the compiler would build the value in one place and copy it to another.
    #[inline(never)]
    pub(super) fn new<B>(request: &Request<B>, content: Content<S>) -> Self {
        let headers = request.headers();
        let mut fields = Vec::with_capacity(headers.len());
        fields.extend(
            headers
                .iter()
                .map(|(name, value)| (name.clone(), value.clone())),
        );
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            fields,
            extensions: request.extensions().clone(),
            content,
        }
    }

    /// Makes the request of a further attempt. `None` means that this attempt cannot be made.
    pub(super) fn request<B>(&self, attempt: Attempt) -> Option<Request<B>>
    where
        B: ReplayableBody<Source = S>,
    {
        // A request with `Upgrade` is sent once, because its connection is about to change its protocol. Only a further
        // attempt searches for the field, so a first attempt does not pay for the search.
        if self.fields.iter().any(|(name, _)| name == UPGRADE) {
            return None;
        }
        let mut request = Request::new(self.content.body(attempt)?);
        *request.method_mut() = self.method.clone();
        *request.uri_mut() = self.uri.clone();
        *request.version_mut() = self.version;
        *request.extensions_mut() = self.extensions.clone();
        request.headers_mut().try_reserve(self.fields.len()).ok();
        for (name, value) in &self.fields {
            let headers = request.headers_mut();
            headers.try_append(name.clone(), value.clone()).ok()?;
        }
        let attempt = match self.extensions.get::<Attempt>() {
            // A retry of a hedge is still a hedge. So an HTTP or gRPC hedge layer below does not hedge it, even if the
            // header field `x-hedge-attempt` is missing.
            Some(outer) if outer.kind() == AttemptKind::Hedge => Attempt::hedge(attempt.number()),
            _ => attempt,
        };
        request.extensions_mut().insert(attempt);
        Some(request)
    }
}

impl<S: Body<Data = Bytes> + Unpin> Content<S> {
    /// Takes the content of `body`, and replaces `body` by the first attempt's body. A body that streams is recorded.
    ///
    /// `is_expected` is true if the request has the field `Expect`. This function then does not poll the body, because
    /// the HTTP client below must poll it first.
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

    pub(super) fn attempt_ended(&self, attempt: Attempt, is_over: bool) -> bool {
        match self {
            Self::Memory(_) => false,
            Self::Recorded(recording) => recording
                .0
                .update(|state| state.attempt_ended(attempt.number(), is_over)),
        }
    }

    /// Makes the body of an attempt. `None` means that this attempt cannot be made.
    pub(super) fn body<B: ReplayableBody<Source = S>>(&self, attempt: Attempt) -> Option<B> {
        match self {
            // An empty body needs no shared bytes.
            Self::Memory(content) if content.is_empty() => Some(B::default()),
            Self::Memory(content) => Some(B::from_memory(content.clone())),
            Self::Recorded(recording) => {
                let reader = recording.reader(attempt, !B::can_be_interrupted())?;
                Some(B::from_replay(ReplayBody::reader(reader)))
            }
        }
    }
}
