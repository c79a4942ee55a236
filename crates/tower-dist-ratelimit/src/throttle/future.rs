use std::{
    fmt,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use pin_project::pin_project;
use tokio::time::Instant;
use tower_service::Service;

use crate::{
    Event, LimitError, RateLimited,
    delayed::Delayed,
    limits::{Check, Limits},
};

/// The response of a [`Throttle`](super::Throttle) service.
///
/// Queued requests with the same keys wait for the first of them. So poll the future until it is ready, or drop it: a
/// future that keeps its place without being polled blocks the requests behind it until they reach
/// [`max_wait`](crate::CallLimitLayerBuilder::max_wait). A call outside a tokio runtime can take a place in a queue
/// only when the future is polled. That poll needs a runtime with a timer.
///
/// # Cancel safety
///
/// If the future is dropped while it waits for tokens, it gives its place to the requests behind it. A charge that a
/// remote backend has not answered yet can stay. If the future is dropped after the wait for tokens and before the call
/// of the inner service, it usually returns its tokens. A remote backend usually receives them in the background. A
/// place in a [leaky queue](crate::Policy::leaky_queue) and tokens of a window that has ended are not returned. After
/// the call of the inner service, dropping the future drops the inner call.
///
/// # Panics
///
/// Can panic if polled again after it was ready. Panics if it needs a timer and no tokio runtime with a timer is
/// running.
#[pin_project]
pub struct ThrottleFuture<S: Service<Req>, Req> {
    #[pin]
    pub(super) state: ThrottleState<S, Req>,
}

#[pin_project(project = StateProjection)]
#[expect(
    clippy::large_enum_variant,
    reason = "a box would be an allocation for every request that need not wait"
)]
pub(super) enum ThrottleState<S: Service<Req>, Req> {
    Waiting {
        turn: BoxTurn,
        /// `None` after the turn.
        call: Option<(S, Req)>,
    },
    Readying {
        delayed: Delayed<S, Req>,
        charged: Charged,
    },
    Calling(#[pin] S::Future),
    RateLimited(Option<RateLimited>),
}

pub(super) type BoxTurn = Pin<Box<dyn Future<Output = Result<Charged, RateLimited>> + Send + Sync>>;

/// The charge of a request. `check` is filled in place, because it is large.
pub(super) struct Charged {
    pub(super) limits: Arc<Limits>,
    pub(super) check: Check,
    pub(super) on_drop: OnDrop,
    /// The approximate time of the charge, if a policy has a window or log algorithm.
    pub(super) since: Option<Instant>,
}

/// The action if a request is dropped.
pub(super) enum OnDrop {
    Nothing,
    /// Emits [`Event::Cancelled`], because no decision was reported, and calls [`Limits::take_back`]. If
    /// `call` ran outside of a runtime, there can be a charge to refund: `call` charged the request, and the
    /// future was dropped before its first poll reported the decision.
    Cancelled,
    /// Calls [`Limits::take_back`], because the inner service was not called, or its `call` panicked.
    Refund,
}

impl Charged {
    #[inline]
    pub(super) fn new(limits: &Arc<Limits>) -> Self {
        let mut rules = limits.rules.iter();
        let has_windows = rules.any(|rule| rule.policy.algorithm().has_windows());
        Self {
            limits: Arc::clone(limits),
            check: Check::default(),
            on_drop: OnDrop::Nothing,
            since: has_windows.then(Instant::now),
        }
    }
}

impl Drop for Charged {
    fn drop(&mut self) {
        match self.on_drop {
            OnDrop::Nothing => return,
            OnDrop::Cancelled => self.limits.emitter.emit(|| Event::Cancelled),
            OnDrop::Refund => {}
        }
        self.limits.take_back(&self.check, self.since);
    }
}

impl<S: Service<Req>, Req> ThrottleState<S, Req> {
    /// Returns the state after the wait for the turn has ended.
    #[inline]
    pub(super) fn decided(decided: Result<Charged, RateLimited>, inner: S, request: Req) -> Self {
        match decided {
            Ok(charged) => Self::charged(charged, inner, request),
            Err(rejected) => Self::RateLimited(Some(rejected)),
        }
    }

    /// Returns the state in which a charged request waits for its delay, and then for the inner service.
    #[inline]
    pub(super) fn charged(mut charged: Charged, inner: S, request: Req) -> Self {
        charged.on_drop = OnDrop::Refund;
        Self::Readying {
            delayed: Delayed::new(charged.limits.delay(&charged.check), inner, request),
            charged,
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
                StateProjection::Waiting { turn, call } => {
                    let decided = ready!(turn.as_mut().poll(cx));
                    let (inner, request) = call.take().expect("polled again after a panic");
                    ThrottleState::decided(decided, inner, request)
                }
                StateProjection::Readying { delayed, charged } => {
                    let inner = ready!(delayed.poll(cx))
                        .map_err(|error| LimitError::Inner(error).known())?;
                    charged.on_drop = OnDrop::Nothing;
                    ThrottleState::Calling(inner)
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
        f.debug_struct("ThrottleFuture").finish_non_exhaustive()
    }
}
