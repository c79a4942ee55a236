use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};

use crate::{ReplayBody, ReplayableBody};

/// What a body that is always in memory streams.
#[derive(Debug)]
pub enum Never {}

impl Body for Never {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match *self {}
    }
}

/// There is none but in memory, and what is in memory is not recorded.
pub(super) fn content(body: ReplayBody<Never>) -> Bytes {
    body.into_memory().unwrap_or_default()
}
