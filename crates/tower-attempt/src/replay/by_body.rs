use std::mem;

use bytes::Bytes;
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

use super::{ReplayableBody, Replays};
use crate::{Attempt, AttemptKind};

/// Repeats HTTP requests whose body is empty or in memory; any other is sent once.
///
/// The head is cloned, the body's bytes are shared. Extra attempts carry their [`Attempt`] in the
/// request's extensions. `reqwest::Request` keeps its extensions private, so there they don't.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByBody;

impl<B: ReplayableBody> Replays<Request<B>> for ByBody {
    type Saved = SavedRequest;

    #[inline]
    fn first(&self, request: &mut Request<B>) -> Option<SavedRequest> {
        match mem::take(request.body_mut()).into_memory() {
            Ok(content) => {
                *request.body_mut() = B::from_memory(content.clone());
                Some(SavedRequest::new(request, content))
            }
            Err(body) => {
                *request.body_mut() = body;
                None
            }
        }
    }

    fn again(&self, saved: &SavedRequest, attempt: Attempt) -> Option<Request<B>> {
        self.last(saved.clone(), attempt)
    }

    fn last(&self, saved: SavedRequest, attempt: Attempt) -> Option<Request<B>> {
        let mut request = Request::new(B::from_memory(saved.content));
        *request.method_mut() = saved.method;
        *request.uri_mut() = saved.uri;
        *request.version_mut() = saved.version;
        *request.headers_mut() = saved.headers;
        *request.extensions_mut() = saved.extensions;
        mark(request.extensions_mut(), attempt);
        Some(request)
    }
}

/// A request whose content is in memory.
///
/// Field by field, and not a `Request<Bytes>`: cloned from a borrowed request, each field goes right
/// into its place, where a `Request` would be made, filled and moved on the way of every call.
#[derive(Clone, Debug)]
pub struct SavedRequest {
    method: Method,
    uri: Uri,
    version: Version,
    headers: HeaderMap,
    extensions: Extensions,
    content: Bytes,
}

impl SavedRequest {
    #[inline]
    fn new<B>(request: &Request<B>, content: Bytes) -> Self {
        Self {
            method: request.method().clone(),
            uri: request.uri().clone(),
            version: request.version(),
            headers: request.headers().clone(),
            extensions: request.extensions().clone(),
            content,
        }
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

#[cfg(feature = "reqwest-013")]
impl Replays<reqwest::Request> for ByBody {
    type Saved = reqwest::Request;

    fn first(&self, request: &mut reqwest::Request) -> Option<reqwest::Request> {
        request.try_clone()
    }

    fn again(&self, saved: &Self::Saved, _: Attempt) -> Option<reqwest::Request> {
        saved.try_clone()
    }

    fn last(&self, saved: Self::Saved, _: Attempt) -> Option<reqwest::Request> {
        Some(saved)
    }
}
