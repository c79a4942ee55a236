use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http_body::{Body, Frame, SizeHint};
use pin_project::pin_project;

use super::Meter;

/// A body that counts what goes through it, and settles when it ends, fails, or is dropped half-way; from
/// [`Meter::body`].
///
/// Its data, its error and its trailers are those of the body inside.
#[pin_project]
pub struct MeteredBody<B, F> {
    #[pin]
    body: B,
    cost: F,
    /// None once the end has come.
    meter: Option<Meter>,
}

impl<B, F> MeteredBody<B, F> {
    pub(super) fn new(meter: Meter, body: B, cost: F) -> Self {
        Self {
            body,
            cost,
            meter: Some(meter),
        }
    }
}

impl<B: Body, F: FnMut(&B::Data) -> u64> Body for MeteredBody<B, F> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let this = self.project();
        let frame = ready!(this.body.poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(meter)) = (frame.data_ref(), &mut *this.meter) {
                    meter.add((this.cost)(data));
                }
            }
            // Whoever holds on to a body that has ended does not hold on to the tokens.
            Some(Err(_)) | None => *this.meter = None,
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B: fmt::Debug, F> fmt::Debug for MeteredBody<B, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeteredBody")
            .field("body", &self.body)
            .field("meter", &self.meter)
            .finish_non_exhaustive()
    }
}
