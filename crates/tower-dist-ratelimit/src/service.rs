use std::{
    fmt, mem,
    sync::Arc,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{ProblemJson, RejectionResponse, ResponseFuture, http::HttpLimits, limits::Outcome};

/// A service behind rate limits, from [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. A rejection is a response; errors are the inner service's own.
///
/// # Cost
///
/// An allowed request to one policy in [`Memory`](crate::backend::Memory), without fields, takes no allocation and no
/// lock. A rejected request clones the inner service: the one that was ready goes away together with what its readiness
/// holds, so that a rejection never keeps a concurrency permit. A request that has to wait for the store takes the ready
/// service along and leaves a clone. One that has to wait in a [leaky queue](crate::Policy::leaky_queue) holds nothing
/// meanwhile, and readies a clone when its turn has come.
#[derive(Clone)]
pub struct RateLimit<S, R = ProblemJson> {
    inner: S,
    http: Arc<HttpLimits>,
    reject: R,
}

impl<S, R> RateLimit<S, R> {
    pub(crate) fn new(inner: S, http: Arc<HttpLimits>, reject: R) -> Self {
        Self {
            inner,
            http,
            reject,
        }
    }
}

impl<S, R, B, ResBody> Service<Request<B>> for RateLimit<S, R>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody> + Clone,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ResponseFuture<S, R, B>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut request: Request<B>) -> Self::Future {
        // Built in place: moving it costs more than the decision.
        let mut question = None;
        let outcome = self.http.decide(&mut question, &request);
        match outcome {
            Outcome::Pass(passed) => {
                let follow_up = self.http.attach(passed, &mut request);
                let limits = &self.http.limits;
                let delay = question.map(|question| limits.delay(&question));
                let Some(delay) = delay.filter(|delay| !delay.is_zero()) else {
                    return ResponseFuture::calling(self.inner.call(request), follow_up);
                };
                let unready = self.inner.clone();
                self.inner = unready.clone();
                ResponseFuture::delayed(delay, unready, request, follow_up)
            }
            Outcome::Reject(reason) => {
                self.inner = self.inner.clone();
                let question = question.get_or_insert_default();
                ResponseFuture::rejected(self.http.rejection(&self.reject, reason, question))
            }
            Outcome::Later(waiting) => {
                let unready = self.inner.clone();
                let ready = mem::replace(&mut self.inner, unready);
                ResponseFuture::deciding(
                    waiting,
                    question.unwrap_or_default(),
                    ready,
                    request,
                    Arc::clone(&self.http),
                    self.reject.clone(),
                )
            }
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
