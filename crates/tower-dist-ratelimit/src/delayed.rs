use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Sleep, sleep};
use tower_service::Service;

/// A request that may pass, but not yet: what a [leaky queue](crate::Policy::leaky_queue) makes of it. Holds nothing of the
/// inner service's while it waits, and readies a clone when its time has come.
pub(crate) struct Delayed<S, Req> {
    delay: Pin<Box<Sleep>>,
    passed: bool,
    /// Not ready.
    inner: S,
    /// None once it is called.
    request: Option<Req>,
}

impl<S: Service<Req>, Req> Delayed<S, Req> {
    pub(crate) fn new(delay: Duration, inner: S, request: Req) -> Box<Self> {
        Box::new(Self {
            delay: Box::pin(sleep(delay)),
            passed: false,
            inner,
            request: Some(request),
        })
    }

    /// Calls the inner service.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Future, S::Error>> {
        if !self.passed {
            ready!(self.delay.as_mut().poll(cx));
            self.passed = true;
        }
        ready!(self.inner.poll_ready(cx))?;
        let request = self
            .request
            .take()
            .expect("polled again after it was called");
        Poll::Ready(Ok(self.inner.call(request)))
    }
}
