mod clock;

use std::pin::Pin;
use std::task::{Context, Poll};

use tower_attempt::{Deadline, Elapsed, TimedOut};

use self::clock::Clock;
use crate::settings::Knobs;

/// No hard time limits: attempts in flight are never ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeLimit;

/// Hard time limits whose outcome comes from the protocol: the service's error type makes it (see
/// [`TimeoutAnswer`](crate::TimeoutAnswer)), or it is gRPC's DEADLINE_EXCEEDED.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardAnswer;

/// Hard time limits whose outcome comes from a closure.
#[derive(Clone, Copy, Debug)]
pub struct OnTimeout<F>(pub(crate) F);

/// Whether a layer has hard time limits.
pub trait Limited {
    /// The timer of one call.
    type Timer: Timer;
    /// The same kind with hard time limits.
    type Hard: Limited<Timer = Clock>;

    /// Whether the limits end attempts in flight.
    const IS_HARD: bool = true;

    /// Turns hard time limits on.
    fn hard(self) -> Self::Hard;
}

/// Makes the outcome of an expired time limit, for a protocol of type `P`.
pub trait TimeLimit<P, Res, E>: Limited {
    /// Returns the outcome for the caller.
    fn answer(&self, elapsed: Elapsed) -> Result<Res, E>;
}

/// Watches one call's time.
pub trait Timer: Sized {
    /// Starts with a call's first attempt. The request's own `deadline` replaces the layer's, and `expiry` shortens it.
    fn start(knobs: &Knobs, deadline: Option<Deadline>, expiry: Option<Deadline>) -> Self;

    /// Restarts the attempt's limit for another attempt.
    fn attempt_started(self: Pin<&mut Self>);

    /// Ready when a limit has expired. The attempt's limit counts only while an attempt is in flight.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, in_flight: bool) -> Poll<Elapsed>;
}

impl Timer for () {
    fn start(_: &Knobs, _: Option<Deadline>, _: Option<Deadline>) {}

    fn attempt_started(self: Pin<&mut Self>) {}

    #[inline]
    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>, _: bool) -> Poll<Elapsed> {
        Poll::Pending
    }
}

impl Limited for NoTimeLimit {
    type Timer = ();
    type Hard = StandardAnswer;

    const IS_HARD: bool = false;

    fn hard(self) -> StandardAnswer {
        StandardAnswer
    }
}

impl Limited for StandardAnswer {
    type Timer = Clock;
    type Hard = Self;

    fn hard(self) -> Self {
        self
    }
}

impl<F> Limited for OnTimeout<F> {
    type Timer = Clock;
    type Hard = Self;

    fn hard(self) -> Self {
        self
    }
}

impl<P, Res, E> TimeLimit<P, Res, E> for NoTimeLimit {
    fn answer(&self, _: Elapsed) -> Result<Res, E> {
        unreachable!("its timer never ends")
    }
}

impl<P: TimedOut<Res, E>, Res, E> TimeLimit<P, Res, E> for StandardAnswer {
    fn answer(&self, elapsed: Elapsed) -> Result<Res, E> {
        P::timed_out(elapsed)
    }
}

impl<F, P, Res, E> TimeLimit<P, Res, E> for OnTimeout<F>
where
    F: Fn(Elapsed) -> Result<Res, E>,
{
    fn answer(&self, elapsed: Elapsed) -> Result<Res, E> {
        (self.0)(elapsed)
    }
}
