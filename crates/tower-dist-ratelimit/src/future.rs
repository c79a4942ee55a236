use std::{
    fmt,
    future::Future,
    mem,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Request, Response};
use pin_project::pin_project;
use tower_service::Service;

use crate::{
    Decided, RejectionResponse,
    delayed::Delayed,
    http::{FollowUp, HttpLimits, Passed},
    limits::{Outcome, Question, Waiting},
    observe::Undecided,
};

/// The response of a [`RateLimit`](crate::RateLimit) service.
///
/// # Cancel safety
///
/// Dropping it drops the inner call, or the wait for the store together with the ready service that it holds. What the
/// request was charged stays charged.
///
/// # Panics
///
/// When it is polled again after it was ready.
#[pin_project]
pub struct ResponseFuture<S: Service<Request<B>>, R, B> {
    #[pin]
    state: State<S, R, B>,
}

#[pin_project(project = StateProjection)]
enum State<S: Service<Request<B>>, R, B> {
    Calling {
        #[pin]
        inner: S::Future,
        follow_up: FollowUp,
    },
    /// Boxed, because only leaky queues get here.
    Delayed(Box<Delayed<S, Request<B>>>, FollowUp),
    /// Boxed, because only a remote store gets here and everybody's future would grow by a request.
    Deciding(Option<Box<Deciding<S, R, B>>>),
    RateLimited(Option<S::Response>),
}

struct Deciding<S, R, B> {
    waiting: Waiting,
    question: Question,
    /// The instance that was ready when the request came.
    ready: S,
    request: Request<B>,
    http: Arc<HttpLimits>,
    reject: R,
    undecided: Undecided,
}

impl<S: Service<Request<B>>, R, B> ResponseFuture<S, R, B> {
    pub(crate) fn calling(inner: S::Future, follow_up: FollowUp) -> Self {
        Self {
            state: State::Calling { inner, follow_up },
        }
    }

    pub(crate) fn delayed(
        delay: Duration,
        unready: S,
        request: Request<B>,
        follow_up: FollowUp,
    ) -> Self {
        Self {
            state: State::Delayed(Box::new(Delayed::new(delay, unready, request)), follow_up),
        }
    }

    pub(crate) fn rejected(response: S::Response) -> Self {
        Self {
            state: State::RateLimited(Some(response)),
        }
    }

    pub(crate) fn deciding(
        waiting: Waiting,
        question: Question,
        ready: S,
        request: Request<B>,
        http: Arc<HttpLimits>,
        reject: R,
    ) -> Self {
        let deciding = Deciding {
            waiting,
            question,
            ready,
            request,
            undecided: Undecided(Some(http.limits.watch.clone())),
            http,
            reject,
        };
        Self {
            state: State::Deciding(Some(Box::new(deciding))),
        }
    }
}

impl<S, R, B, ResBody> Deciding<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody>,
{
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<Passed>> {
        let (limits, question) = (&self.http.limits, &mut self.question);
        let outcome = ready!(self.waiting.poll(limits, question, cx));
        let passed = |decided: Decided<'_>, charged| self.http.passed(decided, charged);
        Poll::Ready(limits.tell(outcome, question, passed))
    }

    fn decided(self, outcome: Outcome<Passed>) -> State<S, R, B> {
        let Self {
            question,
            mut ready,
            mut request,
            http,
            reject,
            mut undecided,
            ..
        } = self;
        undecided.0 = None;
        match outcome {
            Outcome::Pass(passed) => {
                let follow_up = http.attach(passed, &mut request);
                let delay = http.limits.delay(&question);
                if delay.is_zero() {
                    let inner = ready.call(request);
                    return State::Calling { inner, follow_up };
                }
                // The one that is ready goes, and what its readiness holds.
                let unready = ready.clone();
                State::Delayed(Box::new(Delayed::new(delay, unready, request)), follow_up)
            }
            Outcome::Reject(reason) => {
                State::RateLimited(Some(http.rejection(&reject, reason, &question)))
            }
            Outcome::Later(_) => unreachable!("what waits is polled until it is decided"),
        }
    }
}

impl<S, R, B, ResBody> Future for ResponseFuture<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>> + Clone,
    R: RejectionResponse<ResBody>,
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
                StateProjection::Deciding(deciding) => {
                    let waiting = deciding.as_mut().expect("polled again after a panic");
                    let outcome = ready!(waiting.poll(cx));
                    deciding
                        .take()
                        .expect("it was there a line above")
                        .decided(outcome)
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
