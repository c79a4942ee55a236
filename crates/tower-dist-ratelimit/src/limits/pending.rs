use std::{
    mem,
    sync::Arc,
    task::{Context, Poll, ready},
};

use super::{Check, Limits, Outcome};
use crate::Event;

/// A request that waits for the backend's answer or for quota look-ups. If it is dropped before the decision, it emits
/// [`Event::Cancelled`].
pub(crate) struct Pending<S, Req> {
    pub(crate) limits: Arc<Limits>,
    pub(crate) check: Check,
    /// In a layer, holds the instance of the inner service that was ready for the request. `()` in a
    /// `Limiter`.
    pub(crate) service: S,
    /// `None` after the decision.
    request: Option<Req>,
}

impl<S, Req> Pending<S, Req> {
    /// Takes over the check. Boxed, because an unboxed `Pending` would make every future larger.
    pub(crate) fn new(
        limits: &Arc<Limits>,
        check: &mut Check,
        service: S,
        request: Req,
    ) -> Box<Self> {
        // `Box::new` would copy the check and the request once more.
        Box::write(
            Box::new_uninit(),
            Self {
                limits: Arc::clone(limits),
                check: mem::take(check),
                service,
                request: Some(request),
            },
        )
    }

    /// Emits the event of the outcome, and returns the outcome and the request.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<(Outcome, Req)> {
        let outcome = ready!(self.limits.poll(&mut self.check, cx));
        let request = self.request.take().expect("polled again after a panic");
        Poll::Ready((self.limits.report(outcome, &self.check), request))
    }
}

impl<S, Req> Drop for Pending<S, Req> {
    fn drop(&mut self) {
        if self.request.is_some() {
            self.limits.emitter.emit(|| Event::Cancelled);
        }
    }
}
