use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http_body::{Body, SizeHint};
use http_body_util::Full;

use super::ReplayError;
use super::reader::{Reader, Recording};
use super::record::Item;

/// Wraps a body that cannot be resent, so that a layer can record and resend it. The inner service must accept
/// `ReplayBody<B>` as its body.
///
/// Use it for bodies that do not implement [`ReplayableBody`](crate::ReplayableBody), such as the `Incoming` of a hyper
/// server. `BoxBody` and the bodies of axum, tonic and reqwest implement it, so they need no wrapper. If the body's
/// error is a boxed error, use a `BoxBody` instead: the error of a `ReplayBody` implements `Error` only if the body's
/// error does, and a boxed error does not.
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use http_body::Body;
/// use tower_attempt::ReplayBody;
///
/// // Above the layer that retries or hedges: `.map_request(replayable)`.
/// fn replayable<B: Body<Data = Bytes>>(request: Request<B>) -> Request<ReplayBody<B>> {
///     request.map(ReplayBody::new)
/// }
/// # let request = replayable(Request::new(http_body_util::Full::from("hello")));
/// # assert_eq!(request.body().size_hint().exact(), Some(5));
/// ```
///
/// # Cost
///
/// Nothing until a layer records the body. Then each poll takes a few locks. The record allocates twice, and the list of
/// its frames allocates as the list grows. A second attempt that reads the body allocates about three times.
pub struct ReplayBody<S: Body>(Inner<S>);

enum Inner<S: Body> {
    Memory(Full<Bytes>),
    /// A body, and the result of a first poll. That result is boxed, because few bodies have one.
    Source(Option<Box<FirstPoll<S>>>, S),
    Reader(ReaderOf<S>),
}

/// The result of the poll that looked for content in memory. The reader of the body receives it first.
struct FirstPoll<S: Body> {
    item: Item<S::Error>,
    /// The exact size before the poll, in bytes. Stored, because only some bodies update their size hint.
    size: u64,
}

/// A reader of a recorded body. If layers are nested, the recorded body may be a reader itself.
pub(super) type ReaderOf<S> = Reader<ReplayBody<S>, ReplayError<<S as Body>::Error>>;
/// Makes the readers of a recorded body.
pub(super) type RecordingOf<S> = Recording<ReplayBody<S>, ReplayError<<S as Body>::Error>>;

impl<S: Body> ReplayBody<S> {
    /// Wraps a body. The body is recorded only if a layer prepares to resend the request.
    #[must_use]
    pub fn new(body: S) -> Self {
        Self(Inner::Source(None, body))
    }

    pub(super) fn reader(reader: ReaderOf<S>) -> Self {
        Self(Inner::Reader(reader))
    }

    pub(super) fn memory(content: Bytes) -> Self {
        Self(Inner::Memory(Full::new(content)))
    }
}

impl<S: Body<Data = Bytes> + Unpin> ReplayBody<S> {
    /// Returns the content of `body` if the body reports that it is empty. If `may_poll` is true, also returns the
    /// content if one poll yields all of it and the body then reports its end. Otherwise returns the body, which still
    /// yields every frame.
    ///
    /// A body of unknown size is not polled: it probably streams, and a poll would read ahead.
    pub(super) fn look(mut body: S, may_poll: bool) -> Result<Bytes, Self> {
        if body.is_end_stream() {
            return Ok(Bytes::new());
        }
        let Some(size) = body.size_hint().exact().filter(|_| may_poll) else {
            return Err(Self::new(body));
        };
        // A no-op waker is enough: the client polls the body again with its own waker.
        let mut cx = Context::from_waker(Waker::noop());
        let item = match Pin::new(&mut body).poll_frame(&mut cx) {
            Poll::Ready(item) => item,
            Poll::Pending => return Err(Self::new(body)),
        };
        let data = item
            .as_ref()
            .and_then(|first| first.as_ref().ok()?.data_ref());
        match data {
            Some(data) if data.len() as u64 == size && body.is_end_stream() => Ok(data.clone()),
            _ => Err(Self(Inner::Source(
                Some(Box::new(FirstPoll { item, size })),
                body,
            ))),
        }
    }

    /// Returns the content of a body that was made from memory or is empty. Does not poll a wrapped body.
    pub(super) fn into_content(self) -> Result<Bytes, Self> {
        match self.0 {
            Inner::Memory(content) => Ok(content.into_inner().unwrap_or_default()),
            _ if self.is_end_stream() => Ok(Bytes::new()),
            _ => Err(self),
        }
    }
}

/// The default is the empty body.
impl<S: Body> Default for ReplayBody<S> {
    fn default() -> Self {
        Self::memory(Bytes::new())
    }
}

impl<S: Body<Data = Bytes> + Unpin> Body for ReplayBody<S> {
    type Data = Bytes;
    type Error = ReplayError<S::Error>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Item<Self::Error>> {
        match &mut self.get_mut().0 {
            Inner::Memory(content) => {
                let polled = Pin::new(content).poll_frame(cx);
                polled.map_err(|never| match never {})
            }
            Inner::Source(first, rest) => {
                let polled = match first.take() {
                    Some(first) => Poll::Ready(first.item),
                    None => Pin::new(rest).poll_frame(cx),
                };
                polled.map_err(ReplayError::Source)
            }
            Inner::Reader(reader) => reader.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Inner::Memory(content) => content.is_end_stream(),
            Inner::Source(Some(first), _) => first.item.is_none(),
            Inner::Source(None, rest) => rest.is_end_stream(),
            Inner::Reader(reader) => reader.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Inner::Memory(content) => content.size_hint(),
            Inner::Source(Some(first), _) => SizeHint::with_exact(first.size),
            Inner::Source(None, rest) => rest.size_hint(),
            Inner::Reader(reader) => reader.size_hint(),
        }
    }
}

impl<S: Body> fmt::Debug for ReplayBody<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").finish_non_exhaustive()
    }
}
