use std::{
    fmt, mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project::pin_project;
use tower_service::Service;

use super::RateLimit;
use crate::{
    RejectionResponse,
    delayed::Delayed,
    http::FollowUp,
    limits::{Check, Outcome, Pending},
};

/// The response of a [`RateLimit`] service.
///
/// # Cancel safety
///
/// Dropping the future drops the inner call, the wait in a leaky queue, or the pending decision. With a pending
/// decision, this also drops the ready inner service. Charged tokens usually stay charged. But a value that the inner
/// call owns, such as a [`Meter`](crate::Meter), can correct the charge when the value is dropped.
///
/// # Panics
///
/// Can panic if polled again after it was ready. Panics if it needs a timer and no tokio runtime with a timer is
/// running.
#[pin_project]
pub struct ResponseFuture<S: Service<Request<B>>, R, B> {
    #[pin]
    pub(super) state: ResponseState<S, R, B>,
}

#[pin_project(project = StateProjection)]
pub(super) enum ResponseState<S: Service<Request<B>>, R, B> {
    Calling {
        #[pin]
        inner: S::Future,
        follow_up: FollowUp,
    },
    /// Boxed, because only leaky queues delay requests.
    Delayed(Box<Delayed<S, Request<B>>>, FollowUp),
    Deciding(Box<Pending<RateLimit<S, R>, Request<B>>>),
    RateLimited(Option<S::Response>),
}

impl<S, R, B, ResBody> Future for ResponseFuture<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody> + Clone,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Calling { inner, follow_up } => {
                    return follow_up.poll(inner, cx);
                }
                StateProjection::Delayed(delayed, follow_up) => {
                    let inner = ready!(delayed.poll(cx));
                    let inner = inner.inspect_err(|_| follow_up.answered(None))?;
                    let follow_up = mem::take(follow_up);
                    ResponseState::Calling { inner, follow_up }
                }
                StateProjection::Deciding(pending) => {
                    let (outcome, request) = ready!(pending.poll(cx));
                    let Pending { service, check, .. } = &mut **pending;
                    service.handle_outcome(outcome, check, request)
                }
                StateProjection::RateLimited(response) => {
                    return Poll::Ready(Ok(response
                        .take()
                        .expect("polled again after it was ready")));
                }
            };
            state.set(next);
        }
    }
}

impl<S, R> RateLimit<S, R> {
    /// Acts on an outcome: calls the ready inner service, rejects, delays, or waits for the decision.
    ///
    /// Always inlined, because a call would copy the request once more, which takes as long as hashing the key.
    #[inline(always)]
    pub(super) fn handle_outcome<B, ResBody>(
        &mut self,
        outcome: Outcome,
        check: &mut Check,
        mut request: Request<B>,
    ) -> ResponseState<S, R, B>
    where
        S: Service<Request<B>, Response = Response<ResBody>> + Clone,
        R: RejectionResponse<ResBody> + Clone,
    {
        let Self { inner, layer } = self;
        let http = &layer.http;
        match outcome {
            Outcome::Pass { charged } => {
                let follow_up = http.follow_up(check, charged, &mut request);
                let delay = http.limits.delay(check);
                if delay.is_zero() {
                    let inner = inner.call(request);
                    return ResponseState::Calling { inner, follow_up };
                }
                let unready = inner.clone();
                *inner = unready.clone();
                ResponseState::Delayed(Box::new(Delayed::new(delay, unready, request)), follow_up)
            }
            Outcome::Reject(reason) => {
                *inner = inner.clone();
                ResponseState::RateLimited(Some(http.rejection(&layer.reject, reason, check)))
            }
            Outcome::Later => {
                let unready = self.clone();
                let ready = mem::replace(self, unready);
                let limits = &self.layer.http.limits;
                ResponseState::Deciding(Pending::new(limits, check, ready, request))
            }
        }
    }
}

impl<S: Service<Request<B>>, R, B> fmt::Debug for ResponseFuture<S, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}
