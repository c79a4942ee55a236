use std::mem;

use bytes::Bytes;
use http::header::{EXPECT, UPGRADE};
use http::{Extensions, HeaderMap, Method, Request, Uri, Version};

use super::{ReplayableBody, Replays};
use crate::{Attempt, AttemptKind};

/// Repeats HTTP requests whose body is empty or in memory; any other is sent once.
///
/// The head is cloned, the body's bytes are shared. A request with `Upgrade` is sent once: its
/// connection is about to become something else. So is one with a body and `Expect`, which is not
/// looked at before it is wanted. Extra attempts carry their [`Attempt`] in the
/// request's extensions. `reqwest::Request` keeps its extensions private, so there they don't.
#[derive(Clone, Copy, Debug, Default)]
pub struct ByBody;

impl<B: ReplayableBody> Replays<Request<B>> for ByBody {
    type Saved = SavedRequest;

    #[inline]
    fn first(&self, request: &mut Request<B>) -> Option<SavedRequest> {
        // With `Expect: 100-continue` the sender waits for the first poll, and a look at a body that
        // hides what it holds is one.
        if !request.body().is_end_stream() && request.headers().contains_key(EXPECT) {
            return None;
        }
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
        // Looked up only now, since looking up a header takes as long as copying several.
        if saved.headers.contains_key(UPGRADE) {
            return None;
        }
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
    // Inlined, it would be put together in one place and copied to another.
    #[inline(never)]
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

    fn again(&self, saved: &Self::Saved, attempt: Attempt) -> Option<reqwest::Request> {
        self.last(saved.try_clone()?, attempt)
    }

    fn last(&self, saved: Self::Saved, _: Attempt) -> Option<reqwest::Request> {
        (!saved.headers().contains_key(UPGRADE)).then_some(saved)
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    fn request() -> Request<Full<Bytes>> {
        Request::put("http://example.com/?a=b")
            .version(Version::HTTP_2)
            .header("a", "1")
            .header("a", "2")
            .extension("from the caller")
            .body(Full::from("hello"))
            .unwrap()
    }

    #[test]
    fn a_copy_has_all_that_the_request_has() {
        let mut first = request();
        let saved = Replays::first(&ByBody, &mut first).unwrap();
        let again: Request<Full<Bytes>> = ByBody.again(&saved, Attempt::retry(2)).unwrap();
        let last: Request<Full<Bytes>> = ByBody.last(saved, Attempt::retry(3)).unwrap();
        for copy in [first, again, last] {
            assert_eq!(copy.method(), Method::PUT);
            assert_eq!(copy.uri(), "http://example.com/?a=b");
            assert_eq!(copy.version(), Version::HTTP_2);
            assert_eq!(copy.headers().get_all("a").iter().count(), 2);
            assert_eq!(copy.extensions().get(), Some(&"from the caller"));
            assert_eq!(copy.into_body().into_inner().unwrap(), "hello");
        }
    }

    #[test]
    fn a_copy_carries_its_attempt_and_the_first_does_not() {
        let mut first = request();
        let saved = Replays::first(&ByBody, &mut first).unwrap();
        assert_eq!(first.extensions().get::<Attempt>(), None);
        let copy: Request<Full<Bytes>> = ByBody.last(saved, Attempt::retry(2)).unwrap();
        assert_eq!(copy.extensions().get(), Some(&Attempt::retry(2)));
    }

    #[test]
    fn a_body_that_is_expected_is_not_looked_at() {
        let mut expected = request();
        let headers = expected.headers_mut();
        headers.insert(EXPECT, "100-continue".parse().unwrap());
        assert!(Replays::first(&ByBody, &mut expected).is_none());
        *expected.body_mut() = Full::default();
        assert!(Replays::first(&ByBody, &mut expected).is_some());
    }

    #[test]
    fn a_request_that_asks_for_an_upgrade_is_sent_once() {
        let mut handshake = request();
        let headers = handshake.headers_mut();
        headers.insert(UPGRADE, "websocket".parse().unwrap());
        let saved = Replays::first(&ByBody, &mut handshake).unwrap();
        let copy: Option<Request<Full<Bytes>>> = ByBody.again(&saved, Attempt::hedge(2));
        assert!(copy.is_none());
    }
}
