use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::sleep;
use tower_service::Service;

/// A request that waits for its delay in a [leaky queue](crate::Policy::leaky_queue), if it has one, and then until a
/// clone of the inner service is ready. During the delay, the request reserves no capacity of the service.
pub(crate) struct Delayed<S, Req> {
    /// Boxed, because most requests need no timer. A trait object, because the destructor of a `Sleep` would otherwise
    /// be compiled into each codegen unit.
    delay: Option<Pin<Box<dyn Future<Output = ()> + Send + Sync>>>,
    inner: S,
    /// `None` after the call.
    request: Option<Req>,
}

impl<S: Service<Req>, Req> Delayed<S, Req> {
    pub(crate) fn new(delay: Duration, inner: S, request: Req) -> Self {
        Self {
            delay: (!delay.is_zero()).then(|| Box::pin(sleep(delay)) as _),
            inner,
            request: Some(request),
        }
    }

    /// Waits for the delay and for the readiness of the inner service, and then calls the inner service.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<S::Future, S::Error>> {
        if let Some(delay) = &mut self.delay {
            ready!(delay.as_mut().poll(cx));
            self.delay = None;
        }
        ready!(self.inner.poll_ready(cx))?;
        let request = self
            .request
            .take()
            .expect("polled again after it was called");
        Poll::Ready(Ok(self.inner.call(request)))
    }
}
