use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::{Request, Response};
use pin_project::pin_project;
use tower_service::Service;

use crate::{
    Refuse,
    backend::{Bounded, Verdict},
    limits::{Asked, Limits, Ruling, Stamp},
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
        stamp: Option<Stamp>,
    },
    /// Boxed, because only a remote store gets here and everybody's future would grow by a request.
    Deciding(Option<Box<Deciding<S, R, B>>>),
    Refused(Option<S::Response>),
}

struct Deciding<S, R, B> {
    answer: Bounded<Verdict>,
    asked: Asked,
    /// The instance that was ready when the request came.
    ready: S,
    request: Request<B>,
    limits: Arc<Limits>,
    refuse: R,
}

impl<S: Service<Request<B>>, R, B> ResponseFuture<S, R, B> {
    pub(crate) fn calling(inner: S::Future, stamp: Option<Stamp>) -> Self {
        Self {
            state: State::Calling { inner, stamp },
        }
    }

    pub(crate) fn refused(response: S::Response) -> Self {
        Self {
            state: State::Refused(Some(response)),
        }
    }

    pub(crate) fn deciding(
        answer: Bounded<Verdict>,
        asked: Asked,
        ready: S,
        request: Request<B>,
        limits: &Arc<Limits>,
        refuse: R,
    ) -> Self {
        let deciding = Deciding {
            answer,
            asked,
            ready,
            request,
            limits: Arc::clone(limits),
            refuse,
        };
        Self {
            state: State::Deciding(Some(Box::new(deciding))),
        }
    }
}

impl<S, R, B, ResBody> Deciding<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Refuse<ResBody>,
{
    fn decided(self, verdict: Result<Verdict, crate::backend::BackendError>) -> State<S, R, B> {
        let Self {
            asked,
            mut ready,
            request,
            limits,
            refuse,
            ..
        } = self;
        match limits.decided(asked, verdict) {
            Ruling::Pass(stamp) => State::Calling {
                inner: ready.call(request),
                stamp,
            },
            Ruling::Refuse(denied) => State::Refused(Some(limits.refusal(&refuse, &denied))),
        }
    }
}

impl<S, R, B, ResBody> Future for ResponseFuture<S, R, B>
where
    S: Service<Request<B>, Response = Response<ResBody>>,
    R: Refuse<ResBody>,
{
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Calling { inner, stamp } => {
                    let mut response = ready!(inner.poll(cx))?;
                    if let Some(stamp) = stamp.take() {
                        stamp.put_on(response.headers_mut());
                    }
                    return Poll::Ready(Ok(response));
                }
                StateProjection::Deciding(deciding) => {
                    let waiting = deciding.as_mut().expect("polled again after a panic");
                    let verdict = ready!(Pin::new(&mut waiting.answer).poll(cx));
                    deciding
                        .take()
                        .expect("it was there a line above")
                        .decided(verdict)
                }
                StateProjection::Refused(response) => {
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
            State::Deciding(_) => "ResponseFuture(deciding)",
            State::Refused(_) => "ResponseFuture(refused)",
        })
    }
}
