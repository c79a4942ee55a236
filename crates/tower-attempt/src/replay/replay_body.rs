use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::Full;

use super::ReplayError;
use super::reader::{self, Reader, Recording};
use super::unread::{self, Unread};

/// Makes a body of any type one that can be sent again, for services that take it by this type.
///
/// For bodies that can't be made anew, such as a hyper server's `Incoming`. The frameworks' own
/// bodies and `BoxBody` need it not: with them the service sees the type that it is used to. A body
/// whose error is a boxed error is boxed instead, since this one's error is an `Error` only if the
/// body's is.
///
/// ```
/// use bytes::Bytes;
/// use http::Request;
/// use http_body::Body;
/// use tower_attempt::ReplayBody;
///
/// // Above the layer that retries or hedges: `.map_request(repeatable)`.
/// fn repeatable<B: Body<Data = Bytes>>(request: Request<B>) -> Request<ReplayBody<B>> {
///     request.map(ReplayBody::new)
/// }
/// # let request = repeatable(Request::new(http_body_util::Full::from("hello")));
/// # assert_eq!(request.body().size_hint().exact(), Some(5));
/// ```
///
/// # Cost
///
/// Nothing until a layer records it. Then a lock around each frame, and an allocation besides the
/// list of frames; another once there are two readers.
pub struct ReplayBody<S: Body> {
    content: Content<S>,
}

enum Content<S: Body> {
    Memory(Full<Bytes>),
    Source(Unread<S>),
    Reader(ReaderOf<S>),
}

/// A reader of a recorded body. The body may be a reader itself, where layers are above each other.
pub(super) type ReaderOf<S> = Reader<ReplayBody<S>, ReplayError<<S as Body>::Error>>;
/// The source of further readers of a body.
pub(super) type RecordingOf<S> = Recording<ReplayBody<S>, ReplayError<<S as Body>::Error>>;

impl<S: Body> ReplayBody<S> {
    /// A body that is recorded once a layer wants to repeat its request.
    #[must_use]
    pub fn new(body: S) -> Self {
        Self::unread(Unread::new(body))
    }

    fn unread(body: Unread<S>) -> Self {
        Self {
            content: Content::Source(body),
        }
    }

    pub(super) fn reader(reader: ReaderOf<S>) -> Self {
        Self {
            content: Content::Reader(reader),
        }
    }
}

impl<S: Body<Data = Bytes> + Unpin> ReplayBody<S> {
    /// The content of `body`, if it is in memory; otherwise the body, unchanged for its reader.
    pub(super) fn look(body: S, may_poll: bool) -> Result<Bytes, Self> {
        unread::in_memory(body, may_poll).map_err(Self::unread)
    }

    /// The content, if it is in memory.
    pub(super) fn into_content(self) -> Result<Bytes, Self> {
        match self.content {
            Content::Memory(content) => Ok(content.into_inner().unwrap_or_default()),
            _ if self.is_end_stream() => Ok(Bytes::new()),
            _ => Err(self),
        }
    }

    pub(super) fn memory(content: Bytes) -> Self {
        Self {
            content: Content::Memory(Full::new(content)),
        }
    }

    /// The body for the first attempt, and the source of those of further attempts.
    pub(super) fn record(self, limit: usize) -> (Self, RecordingOf<S>) {
        let (reader, recording) = reader::record(self, limit);
        (Self::reader(reader), recording)
    }
}

/// The empty body.
impl<S: Body> Default for ReplayBody<S> {
    fn default() -> Self {
        Self {
            content: Content::Memory(Full::default()),
        }
    }
}

impl<S: Body<Data = Bytes> + Unpin> Body for ReplayBody<S> {
    type Data = Bytes;
    type Error = ReplayError<S::Error>;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        match &mut self.get_mut().content {
            Content::Memory(content) => {
                let polled = Pin::new(content).poll_frame(cx);
                polled.map_err(|never| match never {})
            }
            Content::Source(source) => source.poll_frame(cx).map_err(ReplayError::Source),
            Content::Reader(reader) => reader.poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Memory(content) => content.is_end_stream(),
            Content::Source(source) => source.is_end_stream(),
            Content::Reader(reader) => reader.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Memory(content) => content.size_hint(),
            Content::Source(source) => source.size_hint(),
            Content::Reader(reader) => reader.size_hint(),
        }
    }
}

impl<S: Body> fmt::Debug for ReplayBody<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReplayBody").finish_non_exhaustive()
    }
}
