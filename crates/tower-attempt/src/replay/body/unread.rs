use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

/// The content of a body that turns out to be in memory, found with one poll.
///
/// Only a body of known size is polled: one that streams would be read ahead. If it does stream,
/// `wrap` puts what was read back in front of it.
pub(super) fn in_memory<B>(mut body: B, wrap: impl FnOnce(Unread<B>) -> B) -> Result<Bytes, B>
where
    B: Body<Data = Bytes> + Unpin,
{
    if body.is_end_stream() {
        return Ok(Bytes::new());
    }
    let Some(size) = body.size_hint().exact() else {
        return Err(body);
    };
    // A waker that does nothing is enough: whoever sends the body polls it again with its own.
    match Pin::new(&mut body).poll_frame(&mut Context::from_waker(Waker::noop())) {
        Poll::Pending => Err(body),
        Poll::Ready(Some(Ok(frame))) if is_all(&frame, size) && body.is_end_stream() => {
            Ok(frame.into_data().unwrap_or_default())
        }
        Poll::Ready(first) => Err(wrap(Unread {
            first: Some(first),
            rest: body,
            size,
        })),
    }
}

fn is_all(frame: &Frame<Bytes>, size: u64) -> bool {
    frame
        .data_ref()
        .is_some_and(|data| data.len() as u64 == size)
}

type Polled<B> = Option<Result<Frame<<B as Body>::Data>, <B as Body>::Error>>;

/// A body whose first poll has been taken and is given again.
pub(super) struct Unread<B: Body> {
    first: Option<Polled<B>>,
    rest: B,
    /// What is still to be given: taken once and reduced by what was, since there are bodies that say
    /// the same all along.
    size: u64,
}

// Nothing in it is pinned but `rest`, which is `Unpin` wherever this is used.
impl<B: Body + Unpin> Unpin for Unread<B> {}

impl<B: Body<Data = Bytes> + Unpin> Body for Unread<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let polled = match self.first.take() {
            Some(first) => Poll::Ready(first),
            None => Pin::new(&mut self.rest).poll_frame(cx),
        };
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            let given = frame.data_ref().map_or(0, Bytes::len) as u64;
            self.size = self.size.saturating_sub(given);
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.first {
            Some(first) => first.is_none(),
            None => self.rest.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.size)
    }
}
