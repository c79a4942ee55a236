use std::{
    fmt, mem,
    task::{Context, Poll},
};

use http::{Request, Response};
use tower_service::Service;

use crate::{
    ProblemJson, RateLimitLayer, RejectionResponse, ResponseFuture,
    delayed::Delayed,
    future::{Deciding, State},
    http::Passed,
    limits::{Outcome, Question},
    observe::Undecided,
};

/// A rate-limited HTTP service, from [`RateLimitLayer`](crate::RateLimitLayer).
///
/// It is ready when the inner service is. A rejection is a response; errors are the inner service's own.
///
/// # Cost
///
/// An allowed request to one policy in [`Memory`](crate::backend::Memory), without `RateLimit` headers, takes no allocation and
/// no lock.
///
/// | request | inner service |
/// |---|---|
/// | rejected | The service drops the ready instance, which releases any concurrency permit it holds, and replaces it with a clone. |
/// | waits for the backend | The request takes the ready instance along and leaves a clone. |
/// | waits in a [leaky queue](crate::Policy::leaky_queue) | The request holds nothing, and makes a clone ready when its turn comes. |
#[derive(Clone)]
pub struct RateLimit<S, R = ProblemJson> {
    pub(crate) inner: S,
    pub(crate) layer: RateLimitLayer<R>,
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

    fn call(&mut self, request: Request<B>) -> Self::Future {
        // Built in place: moving it costs more than the decision.
        let mut question = None;
        let outcome = self.layer.http.decide(&mut question, &request);
        ResponseFuture {
            state: self.go_on(outcome, &mut question, request),
        }
    }
}

impl<S, R> RateLimit<S, R> {
    /// Acts on an outcome: calls the ready inner service, rejects, delays, or waits for the decision.
    #[inline]
    pub(crate) fn go_on<B, ResBody>(
        &mut self,
        outcome: Outcome<Passed>,
        question: &mut Option<Question>,
        mut request: Request<B>,
    ) -> State<S, R, B>
    where
        S: Service<Request<B>, Response = Response<ResBody>> + Clone,
        R: RejectionResponse<ResBody> + Clone,
    {
        let Self { inner, layer } = self;
        let http = &layer.http;
        match outcome {
            Outcome::Pass(passed) => {
                let follow_up = http.attach(passed, &mut request);
                let delay = question
                    .as_ref()
                    .map(|question| http.limits.delay(question));
                let Some(delay) = delay.filter(|delay| !delay.is_zero()) else {
                    let inner = inner.call(request);
                    return State::Calling { inner, follow_up };
                };
                let unready = inner.clone();
                *inner = unready.clone();
                State::Delayed(Box::new(Delayed::new(delay, unready, request)), follow_up)
            }
            Outcome::Reject(reason) => {
                *inner = inner.clone();
                let question = question.get_or_insert_default();
                State::RateLimited(Some(http.rejection(&layer.reject, reason, question)))
            }
            Outcome::Later(waiting) => {
                let undecided = Undecided(Some(http.limits.watch.clone()));
                let mut service = self.clone();
                mem::swap(&mut service.inner, &mut self.inner);
                State::Deciding(Box::new(Deciding {
                    waiting,
                    question: question.take().unwrap_or_default(),
                    service,
                    request: Some(request),
                    undecided,
                }))
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
