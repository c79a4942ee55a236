use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep};
use tower_service::Service;

use super::{Gate, turn::Turn};
use crate::{
    Event, LimitError, RateLimited,
    limits::{Outcome, Question},
    observe::Undecided,
};

/// The response of a [`Throttle`](super::Throttle) service.
///
/// # Cancel safety
///
/// Dropping it while it waits gives its place to those behind it. Dropped between its turn and the call of the inner
/// service, it puts its tokens back (but not a place in a leaky queue, nor what was counted in a window that is over). A store
/// that takes its time is told in the background, for as long as there is a handle on the layer. Later, it drops the inner call.
///
/// # Panics
///
/// When it is polled again after it was ready.
#[pin_project]
pub struct ThrottleFuture<S: Service<Req>, Req> {
    #[pin]
    state: State<S, Req>,
}

#[pin_project(project = StateProjection)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for every request that need not wait"
)]
enum State<S: Service<Req>, Req> {
    /// Boxed, because who waits has the time.
    Waiting(Option<Box<Waiting<S, Req>>>),
    Readying(Option<Readying<S, Req>>),
    Calling(#[pin] S::Future),
    RateLimited(Option<RateLimited>),
}

struct Waiting<S, Req> {
    turn: Turn,
    /// Not ready, and holds nothing.
    inner: S,
    request: Req,
    gate: Arc<Gate<Req>>,
    undecided: Undecided,
}

struct Readying<S, Req> {
    /// Until its time in a leaky queue. Boxed, because most requests need none.
    delay: Option<Pin<Box<Sleep>>>,
    inner: S,
    request: Req,
    paid: Paid<Req>,
}

/// Tokens that are put back unless they are used.
struct Paid<Req> {
    gate: Arc<Gate<Req>>,
    /// When, if some are a window's.
    since: Option<Instant>,
    /// None once the inner service is called.
    question: Option<Question>,
}

impl<Req> Drop for Paid<Req> {
    fn drop(&mut self) {
        if let Some(question) = &self.question {
            let limits = &self.gate.calls.limits;
            limits.take_back(question, self.since);
        }
    }
}

impl<S: Service<Req>, Req> ThrottleFuture<S, Req> {
    pub(super) fn waiting(turn: Turn, inner: S, request: Req, gate: Arc<Gate<Req>>) -> Self {
        let waiting = Waiting {
            turn,
            inner,
            request,
            undecided: Undecided(Some(gate.calls.limits.watch.clone())),
            gate,
        };
        Self {
            state: State::Waiting(Some(Box::new(waiting))),
        }
    }

    pub(super) fn readying(
        question: Question,
        inner: S,
        request: Req,
        gate: Arc<Gate<Req>>,
    ) -> Self {
        Self {
            state: State::readying(question, inner, request, gate),
        }
    }

    pub(super) fn rejected(rejected: RateLimited) -> Self {
        Self {
            state: State::RateLimited(Some(rejected)),
        }
    }
}

impl<S: Service<Req>, Req> State<S, Req> {
    fn readying(question: Question, inner: S, request: Req, gate: Arc<Gate<Req>>) -> Self {
        let delay = gate.calls.limits.delay(&question);
        let delay = (!delay.is_zero()).then(|| Box::pin(sleep(delay)));
        let mut rules = gate.calls.limits.rules.iter();
        let has_windows = rules.any(|rule| rule.policy.algorithm().has_windows());
        let since = has_windows.then(Instant::now);
        let question = Some(question);
        Self::Readying(Some(Readying {
            delay,
            inner,
            request,
            paid: Paid {
                gate,
                since,
                question,
            },
        }))
    }
}

impl<S: Service<Req>, Req> Waiting<S, Req> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Outcome<()>> {
        self.turn.poll(&self.gate, cx)
    }

    fn decided(mut self, outcome: Outcome<()>) -> State<S, Req> {
        self.undecided.0 = None;
        if let Some(waited) = self.turn.waited() {
            self.gate.calls.limits.watch.emit(Event::Waited(waited));
        }
        match self.gate.calls.tell(outcome, &self.turn.question) {
            // The place in the line goes with the turn: who is behind goes on.
            Ok(()) => {
                let question = self.turn.question;
                State::readying(question, self.inner, self.request, self.gate)
            }
            Err(rejected) => State::RateLimited(Some(rejected)),
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
                StateProjection::Waiting(waiting) => {
                    let turn = waiting.as_mut().expect("polled again after a panic");
                    let outcome = ready!(turn.poll(cx));
                    let decided = waiting.take().expect("it was there a line above");
                    decided.decided(outcome)
                }
                StateProjection::Readying(readying) => {
                    let unready = readying.as_mut().expect("polled again after a panic");
                    if let Some(delay) = &mut unready.delay {
                        ready!(delay.as_mut().poll(cx));
                        unready.delay = None;
                    }
                    ready!(unready.inner.poll_ready(cx))
                        .map_err(|error| LimitError::Inner(error).known())?;
                    let mut ready = readying.take().expect("it was there a line above");
                    ready.paid.question = None;
                    State::Calling(ready.inner.call(ready.request))
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
            State::Waiting(_) => "ThrottleFuture(waiting)",
            State::Readying(_) => "ThrottleFuture(readying)",
            State::Calling(_) => "ThrottleFuture(calling)",
            State::RateLimited(_) => "ThrottleFuture(rejected)",
        })
    }
}
