use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project::pin_project;
use tower_service::Service;

use crate::{
    Decided, RateLimit, RejectionResponse,
    delayed::Delayed,
    http::FollowUp,
    limits::{Question, Waiting},
    observe::Undecided,
};

/// The response of a [`RateLimit`] service.
///
/// # Cancel safety
///
/// Dropping it drops the inner call, or the pending decision together with the ready service. The charge stays.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[pin_project]
pub struct ResponseFuture<S: Service<Request<B>>, R, B> {
    #[pin]
    pub(crate) state: State<S, R, B>,
}

#[pin_project(project = StateProjection)]
pub(crate) enum State<S: Service<Request<B>>, R, B> {
    Calling {
        #[pin]
        inner: S::Future,
        follow_up: FollowUp,
    },
    /// Boxed, because only leaky queues delay requests.
    Delayed(Box<Delayed<S, Request<B>>>, FollowUp),
    /// Boxed, because the request would make the future of every call larger.
    Deciding(Box<Deciding<S, R, B>>),
    RateLimited(Option<S::Response>),
}

/// A request that waits for a remote backend or a quota look-up.
pub(crate) struct Deciding<S, R, B> {
    pub(crate) waiting: Waiting,
    pub(crate) question: Question,
    /// Holds the instance of the inner service that was ready for the request.
    pub(crate) service: RateLimit<S, R>,
    /// `None` after the decision.
    pub(crate) request: Option<Request<B>>,
    pub(crate) undecided: Undecided,
}

impl<S, R, B, ResBody> Deciding<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody> + Clone,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<State<S, R, B>> {
        let Self {
            waiting,
            question,
            service,
            request,
            undecided,
        } = self;
        let http = &service.layer.http;
        let outcome = ready!(waiting.poll(&http.limits, question, cx));
        undecided.0 = None;
        let passed = |decided: Decided<'_>, charged| http.passed(decided, charged);
        let outcome = http.limits.tell(outcome, question, passed);
        let request = request.take().expect("polled again after a panic");
        let question = &mut Some(mem::take(question));
        Poll::Ready(service.go_on(outcome, question, request))
    }
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
                    let inner = match ready!(delayed.poll(cx)) {
                        Ok(inner) => inner,
                        Err(error) => {
                            follow_up.answered(None);
                            return Poll::Ready(Err(error));
                        }
                    };
                    let follow_up = mem::take(follow_up);
                    State::Calling { inner, follow_up }
                }
                StateProjection::Deciding(deciding) => ready!(deciding.poll(cx)),
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

impl<S: Service<Request<B>>, R, B> fmt::Debug for ResponseFuture<S, R, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Calling { .. } => "ResponseFuture(calling)",
            State::Delayed(..) => "ResponseFuture(delayed)",
            State::Deciding(_) => "ResponseFuture(deciding)",
            State::RateLimited(_) => "ResponseFuture(rejected)",
        })
    }
}
