use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};

use http::header::{AUTHORIZATION, COOKIE, HOST, UPGRADE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Version};

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
fn a_copy_has_all_parts_of_the_request() {
    let mut first = request();
    let saved = first.save(1_000).unwrap();
    let again: Request<Full<Bytes>> = Request::again(&saved, Attempt::retry(2)).unwrap();
    let last: Request<Full<Bytes>> = Request::again(&saved, Attempt::retry(3)).unwrap();
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
    let saved = first.save(1_000).unwrap();
    assert_eq!(first.extensions().get::<Attempt>(), None);
    let copy: Request<Full<Bytes>> = Request::again(&saved, Attempt::retry(2)).unwrap();
    assert_eq!(copy.extensions().get(), Some(&Attempt::retry(2)));
}

#[test]
fn a_body_that_waits_for_100_continue_is_not_polled() {
    let mut expected = request().map(|body| Unread(body).boxed_unsync());
    let headers = expected.headers_mut();
    headers.insert(EXPECT, "100-continue".parse().unwrap());
    let saved = expected.save(1_000).unwrap();
    assert_eq!(expected.body().size_hint().exact(), Some(5));
    let copy: Request<UnsyncBoxBody<_, _>> = Request::again(&saved, Attempt::retry(2)).unwrap();
    assert_eq!(copy.headers()[EXPECT], "100-continue");
    assert_eq!(copy.body().size_hint().exact(), Some(5));
}

/// A body of known size that must not be polled.
struct Unread(Full<Bytes>);

impl Body for Unread {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("the server has not asked for it")
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}

#[test]
fn a_request_that_asks_for_an_upgrade_is_sent_once() {
    let mut handshake = request();
    let headers = handshake.headers_mut();
    headers.insert(UPGRADE, "websocket".parse().unwrap());
    let saved = handshake.save(1_000).unwrap();
    let copy: Option<Request<Full<Bytes>>> = Request::again(&saved, Attempt::hedge(2));
    assert!(copy.is_none());
}

/// Several values of a name, not next to each other, a secret value, an empty value, and a custom name.
fn headers() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let own = HeaderName::from_static("x-own");
    let mut secret = HeaderValue::from_static("secret");
    secret.set_sensitive(true);
    for (name, value) in [(COOKIE, "a"), (own, "b"), (COOKIE, "c"), (HOST, "")] {
        headers.append(name, HeaderValue::from_static(value));
    }
    headers.append(AUTHORIZATION, secret);
    headers.append(COOKIE, HeaderValue::from_static("d"));
    headers
}

/// The header fields of a further attempt.
fn resent(headers: HeaderMap) -> HeaderMap {
    let mut request = request();
    *request.headers_mut() = headers;
    let saved = request.save(1_000).unwrap();
    let copy: Request<Full<Bytes>> = Request::again(&saved, Attempt::retry(2)).unwrap();
    copy.headers().clone()
}

#[test]
fn a_copy_has_the_header_fields_in_their_order() {
    let headers = headers();
    let copy = resent(headers.clone());
    assert_eq!(copy, headers);
    assert!(copy.iter().eq(&headers), "in another order");
    assert!(copy[AUTHORIZATION].is_sensitive());
    assert!(!copy[HOST].is_sensitive());
    assert_eq!(resent(HeaderMap::new()), HeaderMap::new());
}

/// A map holds fewer names than this.
#[test]
fn one_name_may_have_any_number_of_values() {
    let mut headers = HeaderMap::new();
    for number in 0..40_000 {
        headers.append(COOKIE, number.into());
    }
    assert_eq!(resent(headers.clone()), headers);
}
