use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body::{Body, Frame, SizeHint};
use http_body_util::Collected;
use http_body_util::channel::Channel;

use super::*;
use crate::ReplayError;

/// Content in several frames of a known total size, all ready immediately.
struct Frames(Vec<&'static str>, u64);

impl Body for Frames {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        Poll::Ready(Some(match self.0.remove(0) {
            "error" => Err("broken"),
            data => {
                self.1 -= data.len() as u64;
                Ok(Frame::data(Bytes::from(data)))
            }
        }))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.1)
    }
}

fn memory<B: ReplayableBody>(body: B) -> Option<Bytes> {
    body.into_memory(true).ok()
}

async fn text<B: Body<Data = Bytes>>(body: B) -> Bytes
where
    B::Error: std::fmt::Debug,
{
    body.collect()
        .await
        .map(Collected::to_bytes)
        .expect("a body without errors")
}

/// Asserts that "hello" in memory is found, and that it makes an equal body.
async fn in_memory_bodies_are_found<B>(body: impl Fn(&'static str) -> B)
where
    B: ReplayableBody + Body<Data = Bytes>,
    B::Error: std::fmt::Debug,
{
    assert_eq!(memory(body("hello")).unwrap(), "hello");
    assert_eq!(memory(body("")).unwrap(), "");
    let copy = B::from_memory(memory(body("hello")).unwrap());
    assert_eq!(copy.size_hint().exact(), Some(5));
    assert_eq!(text(copy).await, "hello");
    assert!(B::from_memory(Bytes::new()).is_end_stream());
}

#[tokio::test]
async fn in_memory_bodies_of_every_type_are_found() {
    in_memory_bodies_are_found(|text| Full::new(Bytes::from(text))).await;
    in_memory_bodies_are_found(|text| BoxBody::new(Full::from(text))).await;
    in_memory_bodies_are_found(|text| UnsyncBoxBody::new(Full::from(text))).await;
    #[cfg(feature = "axum-08")]
    in_memory_bodies_are_found(axum_core::body::Body::from).await;
    #[cfg(feature = "tonic-014")]
    in_memory_bodies_are_found(|text| tonic::body::Body::new(Full::<Bytes>::from(text))).await;
    #[cfg(feature = "reqwest-013")]
    in_memory_bodies_are_found(reqwest::Body::from).await;
    assert_eq!(memory(Empty::<Bytes>::new()).unwrap(), "");
}

/// A body of unknown size, which must not be polled.
struct Unsized;

impl Body for Unsized {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        panic!("read ahead of its reader")
    }
}

#[test]
fn a_body_of_unknown_size_is_not_polled() {
    assert!(UnsyncBoxBody::new(Unsized).into_memory(true).is_err());
}

#[tokio::test]
async fn a_streaming_body_of_known_size_reaches_its_reader_whole() {
    let body = UnsyncBoxBody::new(Frames(vec!["he", "l", "lo"], 5));
    let unread = body.into_memory(true).expect_err("in several frames");
    assert_eq!(unread.size_hint().exact(), Some(5));
    assert!(!unread.is_end_stream());
    assert_eq!(text(unread).await, "hello");
}

/// Such bodies exist, because hyper reads the size hint only once, before it reads the body.
#[tokio::test]
async fn a_body_that_never_changes_its_size_hint_keeps_its_length() {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(2);
    sender.send_data(Bytes::from("he")).await.unwrap();
    sender.send_data(Bytes::from("llo")).await.unwrap();
    drop(sender);
    let unread = UnsyncBoxBody::new(Sized5(body)).into_memory(true);
    let unread = unread.expect_err("in two frames");
    assert_eq!(unread.size_hint().exact(), Some(5));
    assert_eq!(text(unread).await, "hello");
}

#[tokio::test]
async fn a_body_whose_content_is_still_to_come_is_returned() {
    let (mut sender, body) = Channel::<Bytes, Infallible>::new(1);
    let unread = UnsyncBoxBody::new(Sized5(body))
        .into_memory(true)
        .expect_err("not there yet");
    sender.send_data(Bytes::from("hello")).await.unwrap();
    drop(sender);
    assert_eq!(text(unread).await, "hello");
}

/// A channel with the size hint of five bytes.
struct Sized5(Channel<Bytes, Infallible>);

impl Body for Sized5 {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(5)
    }
}

#[tokio::test]
async fn an_error_of_the_first_poll_reaches_the_reader() {
    let body = UnsyncBoxBody::new(Frames(vec!["error"], 5));
    let unread = body.into_memory(true).expect_err("an error is no content");
    assert_eq!(
        unread.collect().await.unwrap_err(),
        ReplayError::Source("broken")
    );
}
