use std::any::Any;
use std::error::Error;
use std::io;
use std::pin::Pin;
#[cfg(feature = "tonic-014")]
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::replay::{Interrupted, ReplayBody, ReplayError};

/// A replayed body with the error type of the body that it replays.
///
/// If that type cannot express an interruption, an interrupted body stays pending forever. If the body ended instead,
/// the server could accept a part of the body as the whole body.
pub(super) struct Native<S: Body> {
    body: ReplayBody<S>,
    /// Whether the body was interrupted, and stays pending because its error type cannot express that.
    is_mute: bool,
}

impl<S: Body> Native<S> {
    pub(super) fn new(body: ReplayBody<S>) -> Self {
        let is_mute = false;
        Self { body, is_mute }
    }
}

// No field is structurally pinned: `poll_frame` uses `Pin::new`.
impl<S: Body + Unpin> Unpin for Native<S> {}

impl<S: Body<Data = Bytes, Error: 'static> + Unpin> Body for Native<S> {
    type Data = Bytes;
    type Error = S::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, S::Error>>> {
        if self.is_mute {
            return Poll::Pending;
        }
        let item = ready!(Pin::new(&mut self.body).poll_frame(cx));
        let error = match item.transpose() {
            Ok(frame) => return Poll::Ready(frame.map(Ok)),
            Err(ReplayError::Source(error)) => Some(error),
            Err(ReplayError::Interrupted) => interrupted(),
        };
        self.is_mute = error.is_none();
        error.map_or(Poll::Pending, |error| Poll::Ready(Some(Err(error))))
    }

    fn is_end_stream(&self) -> bool {
        !self.is_mute && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Returns an [`Interrupted`] as an error of type `E`, or `None` if `E` is none of the types below.
pub(super) fn interrupted<E: 'static>() -> Option<E> {
    fn fill<T: 'static>(error: &mut dyn Any, interrupted: impl FnOnce() -> T) {
        if let Some(error) = error.downcast_mut() {
            *error = Some(interrupted());
        }
    }
    let mut error: Option<E> = None;
    fill(&mut error, || {
        Box::<dyn Error + Send + Sync>::from(Interrupted)
    });
    fill(&mut error, || io::Error::other(Interrupted));
    fill(&mut error, || Interrupted);
    #[cfg(feature = "axum-08")]
    fill(&mut error, || axum_core::Error::new(Interrupted));
    #[cfg(feature = "tonic-014")]
    fill(&mut error, || {
        let mut status = tonic::Status::cancelled(Interrupted.to_string());
        status.set_source(Arc::new(Interrupted));
        status
    });
    error
}
