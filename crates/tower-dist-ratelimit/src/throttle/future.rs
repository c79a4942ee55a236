use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    LimitError, RateLimited,
    delayed::Delayed,
    limits::{Limits, Question},
};

/// The response of a [`Throttle`](super::Throttle) service.
///
/// Requests with the same keys wait for the first of them. So poll the future until it is ready, or drop it: a future that
/// keeps its place without being polled blocks the requests behind it until they reach `max_wait`. A call outside a tokio
/// runtime takes its place when the future is first polled, which needs a runtime with a timer.
///
/// # Cancel safety
///
/// If the future is dropped while it waits, it gives its place to the requests behind it. If it is dropped between its
/// turn and the call of the inner service, it returns its tokens, in the background if the backend takes time. A place in
/// a leaky queue and tokens of a window that has ended are not returned. After that, dropping the future drops the inner call.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[pin_project]
pub struct ThrottleFuture<S: Service<Req>, Req> {
    #[pin]
    pub(super) state: State<S, Req>,
}

#[pin_project(project = StateProjection)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for every request that need not wait"
)]
pub(super) enum State<S: Service<Req>, Req> {
    Waiting {
        turn: BoxTurn,
        limits: Arc<Limits>,
        /// `None` after the turn.
        call: Option<(S, Req)>,
    },
    Readying {
        delayed: Delayed<S, Req>,
        paid: Paid,
    },
    Calling(#[pin] S::Future),
    RateLimited(Option<RateLimited>),
}

pub(super) type BoxTurn =
    Pin<Box<dyn Future<Output = Result<Question, RateLimited>> + Send + Sync>>;

/// A charge that is refunded unless the inner service is called.
pub(super) struct Paid {
    limits: Arc<Limits>,
    /// The time of the charge, if a policy counts in windows.
    since: Option<Instant>,
    /// `None` after the call.
    question: Option<Question>,
}

impl Drop for Paid {
    fn drop(&mut self) {
        if let Some(question) = &self.question {
            self.limits.take_back(question, self.since);
        }
    }
}

impl<S: Service<Req>, Req> State<S, Req> {
    /// Returns the state after the wait for the turn has ended.
    #[inline]
    pub(super) fn decided(
        decided: Result<Question, RateLimited>,
        limits: &Arc<Limits>,
        inner: S,
        request: Req,
    ) -> Self {
        let question = match decided {
            Ok(question) => question,
            Err(rejected) => return Self::RateLimited(Some(rejected)),
        };
        let mut rules = limits.rules.iter();
        let has_windows = rules.any(|rule| rule.policy.algorithm().has_windows());
        Self::Readying {
            delayed: Delayed::new(limits.delay(&question), inner, request),
            paid: Paid {
                limits: Arc::clone(limits),
                since: has_windows.then(Instant::now),
                question: Some(question),
            },
        }
    }
}

impl<S, Req> Future for ThrottleFuture<S, Req>
where
    S: Service<Req, Error: 'static>,
{
    type Output = Result<S::Response, LimitError<S::Error>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.project().state;
        loop {
            let next = match state.as_mut().project() {
                StateProjection::Waiting { turn, limits, call } => {
                    let decided = ready!(turn.as_mut().poll(cx));
                    let (inner, request) = call.take().expect("polled again after a panic");
                    State::decided(decided, limits, inner, request)
                }
                StateProjection::Readying { delayed, paid } => {
                    let inner = ready!(delayed.poll(cx))
                        .map_err(|error| LimitError::Inner(error).known())?;
                    paid.question = None;
                    State::Calling(inner)
                }
                StateProjection::Calling(inner) => {
                    return inner
                        .poll(cx)
                        .map_err(|error| LimitError::Inner(error).known());
                }
                StateProjection::RateLimited(rejected) => {
                    let rejected = rejected.take().expect("polled again after it was ready");
                    return Poll::Ready(Err(LimitError::RateLimited(rejected).known()));
                }
            };
            state.set(next);
        }
    }
}

impl<S: Service<Req>, Req> fmt::Debug for ThrottleFuture<S, Req> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.state {
            State::Waiting { .. } => "ThrottleFuture(waiting)",
            State::Readying { .. } => "ThrottleFuture(readying)",
            State::Calling(_) => "ThrottleFuture(calling)",
            State::RateLimited(_) => "ThrottleFuture(rejected)",
        })
    }
}
