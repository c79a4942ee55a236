use std::task::{Context, Poll, Waker};

use tokio::runtime::Handle;
use tower_service::Service;

use super::{
    ThrottleFuture,
    future::{Charged, OnDrop, ThrottleState},
    turn::{can_pass, turn},
};
use crate::{CallLimit, CallLimitLayer, LimitError, Waits, limits::Outcome};

impl<S, Req> Service<Req> for CallLimit<S, Req, Waits>
where
    S: Service<Req, Error: 'static> + Clone,
{
    type Response = S::Response;
    type Error = LimitError<S::Error>;
    type Future = ThrottleFuture<S, Req>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let CallLimitLayer { calls, mode } = &self.layer;
        let limits = &calls.limits;
        let mut charged = Charged::new(limits);
        let check = &mut charged.check;
        let outcome = match limits.prepare(check, calls.apply(&request)) {
            Err(reason) => Some(Outcome::Reject(reason)),
            Ok(_) if mode.queues.any() && !limits.shadow && can_pass(limits, check) => None,
            Ok(_) => Some(limits.decide_charges(check)),
        };
        let inner = self.inner.clone();
        if let Some(pass @ Outcome::Pass { .. }) = outcome
            && check.delay().is_zero()
        {
            limits.report(pass, check);
            let state = ThrottleState::charged(charged, inner, request);
            return ThrottleFuture { state };
        }
        charged.on_drop = OnDrop::Cancelled;
        let mut turn = Box::pin(turn(mode.clone(), charged, outcome));
        // The first poll takes the place in the queue, unless the request first has to await the backend's answer. So
        // requests normally pass in the order of their calls. This poll can need the runtime's timer. Outside of a
        // runtime, the first poll is left to the caller.
        let first = match Handle::try_current() {
            Ok(_) => turn.as_mut().poll(&mut Context::from_waker(Waker::noop())),
            Err(_) => Poll::Pending,
        };
        let state = match first {
            Poll::Ready(decided) => ThrottleState::decided(decided, inner, request),
            Poll::Pending => {
                let call = Some((inner, request));
                ThrottleState::Waiting { turn, call }
            }
        };
        ThrottleFuture { state }
    }
}
