use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    ProblemJson, Refuse, ResponseFuture,
    key::RequestHead,
    limits::{Limits, Outcome, Ruling},
};

/// A service behind rate limits, from [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. A refusal is a response; errors are the inner service's own.
///
/// # Cost
///
/// An allowed request to one policy in [`Memory`](crate::backend::Memory), without fields, takes no allocation and no
/// lock. A refused request clones the inner service: the one that was ready goes away together with what its readiness
/// holds, so that a refusal never keeps a concurrency permit. A request that has to wait for the store takes the ready
/// service along and leaves a clone.
pub struct RateLimit<S, R = ProblemJson> {
    inner: S,
    limits: Arc<Limits>,
    refuse: R,
}

impl<S, R> RateLimit<S, R> {
    pub(crate) fn new(inner: S, limits: Arc<Limits>, refuse: R) -> Self {
        Self {
            inner,
            limits,
            refuse,
        }
    }
}

impl<S, R, B, ResBody> Service<Request<B>> for RateLimit<S, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: Refuse<ResBody> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, R, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        match self.limits.decide(RequestHead::new(&request)) {
            Outcome::Now(Ruling::Pass(stamp)) => {
                ResponseFuture::calling(self.inner.call(request), stamp)
            }
            Outcome::Now(Ruling::Refuse(denied)) => {
                self.inner = self.inner.clone();
                ResponseFuture::refused(self.limits.refusal(&self.refuse, &denied))
            }
            Outcome::Later { answer, asked } => {
                let unready = self.inner.clone();
                let ready = mem::replace(&mut self.inner, unready);
                ResponseFuture::deciding(
                    answer,
                    asked,
                    ready,
                    request,
                    &self.limits,
                    self.refuse.clone(),
                )
            }
        }
    }
}

impl<S: Clone, R: Clone> Clone for RateLimit<S, R> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            limits: Arc::clone(&self.limits),
            refuse: self.refuse.clone(),
        }
    }
}

impl<S: fmt::Debug, R> fmt::Debug for RateLimit<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimit")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}
