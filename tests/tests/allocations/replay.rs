//! Allocations of a request that can be resent.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Request};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Frame};
use tower_attempt::{Attempt, ReplayBody, ReplayableBody, ReplayableRequest};

use crate::allocations;

/// An endless stream of one frame.
struct Stream;

impl Body for Stream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"hello")))))
    }
}

fn frame(body: &mut (impl Body<Data = Bytes> + Unpin)) {
    let mut cx = Context::from_waker(Waker::noop());
    assert!(Pin::new(body).poll_frame(&mut cx).is_ready());
}

/// The replay limit, in bytes.
const LIMIT: usize = 64 * 1024;

/// The number of allocations that save a request with this body and no header fields.
fn saving<B: ReplayableBody>(body: B) -> u64 {
    let mut request = Request::new(body);
    let (count, saved) = allocations(|| request.save(LIMIT));
    assert!(saved.is_some());
    count
}

#[test]
fn a_body_that_streams_takes_a_record_a_list_of_readers_and_a_box() {
    assert_eq!(saving(UnsyncBoxBody::new(Stream)), 3);
    // The body is not boxed.
    assert_eq!(saving(ReplayBody::new(Stream)), 2);
}

#[test]
fn frames_allocate_one_growing_list() {
    let mut request = Request::new(ReplayBody::new(Stream));
    let saved = request.save(LIMIT).unwrap();
    let body = request.body_mut();
    let (count, ()) = allocations(|| (0..4).for_each(|_| frame(body)));
    assert_eq!(count, 1);
    let (count, ()) = allocations(|| (0..60).for_each(|_| frame(body)));
    assert_eq!(count, 4);
    drop(saved);
    let (count, ()) = allocations(|| (0..1_000).for_each(|_| frame(body)));
    assert_eq!(count, 0, "nothing is recorded any more");
}

#[test]
fn a_body_in_memory_allocates_only_its_box() {
    assert_eq!(saving(Full::from("hello")), 0);
    assert_eq!(saving(Full::<Bytes>::from("hello").boxed_unsync()), 1);
    assert_eq!(saving(UnsyncBoxBody::<Bytes, Infallible>::default()), 0);
    assert_eq!(saving(Full::<Bytes>::default().boxed_unsync()), 0);
}

#[test]
fn header_fields_take_a_list() {
    let mut request = Request::new(Full::<Bytes>::default());
    for (name, value) in [("accept", "a"), ("accept", "b"), ("x-own", "c")] {
        let name = HeaderName::from_static(name);
        let value = HeaderValue::from_static(value);
        request.headers_mut().append(name, value);
    }
    let (count, saved) = allocations(|| request.save(LIMIT));
    assert!(saved.is_some());
    assert_eq!(count, 1);
}

#[test]
fn another_reader_takes_the_wakers() {
    let mut request = Request::new(ReplayBody::new(Stream));
    let saved = request.save(LIMIT).unwrap();
    frame(request.body_mut());
    // The list of wakers, its shared owner, and the extension with the attempt.
    let (count, copy) = allocations(|| saved_copy(&saved));
    let mut plain = Request::new(());
    let (mark, _) = allocations(|| plain.extensions_mut().insert(Attempt::hedge(2)));
    assert!(count - mark <= 2, "{count}, {mark} for the mark");
    drop(copy);
}

fn saved_copy(
    saved: &<Request<ReplayBody<Stream>> as ReplayableRequest>::Saved,
) -> Request<ReplayBody<Stream>> {
    Request::again(saved, Attempt::hedge(2)).unwrap()
}
