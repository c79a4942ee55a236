use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The content of a body that turns out to be in memory, found with one poll if the body may be polled.
///
/// Only a body of known size is polled: a body that streams would be read ahead. If it does stream, the first frame is
/// put back in front of it.
pub(super) fn in_memory<B>(mut body: B, may_poll: bool) -> Result<Bytes, Unread<B>>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let Some(size) = body.size_hint().exact().filter(|_| may_poll) else {
        return Err(Unread::new(body));
    };
    // A waker that does nothing is enough: the sender of the body polls it again with its own.
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Err(Unread::new(body)),
        Poll::Ready(Some(Ok(frame))) if is_all(&frame, size) && body.is_end_stream() => {
            Ok(frame.into_data().unwrap_or_default())
        }
        Poll::Ready(first) => {
            let first = Some(Box::new(Looked { first, size }));
            Err(Unread { first, rest: body })
        }
    }
}

fn is_all(frame: &Frame<Bytes>, size: u64) -> bool {
    frame
        .data_ref()
        .is_some_and(|data| data.len() as u64 == size)
}

type Polled<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A body of which the first poll may have been taken, and is given again.
pub(super) struct Unread<B: Body> {
    /// Boxed, since few bodies have it.
    first: Option<Box<Looked<B>>>,
    rest: B,
}

struct Looked<B: Body> {
    first: Polled<B>,
    /// What the body said before it was polled, since there are bodies that say the same all along.
    size: u64,
}

impl<B: Body> Unread<B> {
    pub(super) fn new(rest: B) -> Self {
        Self { first: None, rest }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Unread<B> {
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Polled<B>> {
        match self.first.take() {
            Some(looked) => Poll::Ready(looked.first),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        }
    }

    pub(super) fn is_end_stream(&self) -> bool {
        match &self.first {
            Some(looked) => looked.first.is_none(),
            None => self.rest.is_end_stream(),
        }
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        match &self.first {
            Some(looked) => SizeHint::with_exact(looked.size),
            None => self.rest.size_hint(),
        }
    }
}
