use std::{
    pin::Pin,
    task::{Context, Poll},
};

use http::Response;

use super::{ResponseHead, Stamp};

/// The remaining work on the response, after a request has passed. Kept small, because every response future has room
/// for it.
#[derive(Default)]
pub(crate) struct FollowUp {
    pub(super) stamp: Option<Stamp>,
    pub(super) refund: Option<Refund>,
}

/// Decides on the refund of one request. `None` means that the inner service failed.
pub(super) type Refund = Box<dyn FnOnce(Option<ResponseHead<'_>>) + Send + Sync>;

impl FollowUp {
    /// Runs the pending refund, if there is one. `None` means that the inner service failed.
    pub(crate) fn answered(&mut self, response: Option<ResponseHead<'_>>) {
        if let Some(refund) = self.refund.take() {
            refund(response);
        }
    }

    /// Polls the future of the inner service, and does the remaining work when the future is ready. Without remaining
    /// work, does not move the response, because a move takes half as long as the decision.
    #[inline]
    pub(crate) fn poll<B, E>(
        &mut self,
        inner: Pin<&mut impl Future<Output = Result<Response<B>, E>>>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Response<B>, E>> {
        if self.stamp.is_none() && self.refund.is_none() {
            return inner.poll(cx);
        }
        let mut answer = inner.poll(cx);
        if let Poll::Ready(answer) = &mut answer {
            self.answered(answer.as_ref().ok().map(ResponseHead::new));
            if let (Ok(response), Some(stamp)) = (answer, self.stamp.take()) {
                stamp.put_on(response.headers_mut());
            }
        }
        answer
    }
}
