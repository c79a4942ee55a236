mod clock;

use std::pin::Pin;
use std::task::{Context, Poll};

use tower_attempt::{Deadline, Elapsed, TimedOut};

use self::clock::Clock;
use crate::settings::Knobs;

/// A layer without hard time limits: what is in flight is never ended.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeLimit;

/// Hard time limits, answered as the protocol has it: with what the service's error type says (see
/// [`TimeoutAnswer`](crate::TimeoutAnswer)), or gRPC's DEADLINE_EXCEEDED.
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardAnswer;

/// Hard time limits, answered by a closure.
#[derive(Clone, Copy, Debug)]
pub struct OnTimeout<F>(pub(crate) F);

/// Whether a layer has hard time limits.
pub trait Limited {
    /// The timer of one call.
    type Timer: Timer;
    /// The same with hard time limits.
    type Hard: Limited<Timer = Clock>;

    /// Whether it ends what is in flight.
    const IS_HARD: bool = true;

    /// Turns hard time limits on.
    fn hard(self) -> Self::Hard;
}

/// The outcome of a hard time limit that ran out, for a protocol of type `P`.
pub trait TimeLimit<P, Res, E>: Limited {
    /// The outcome that the caller gets.
    fn answer(&self, elapsed: Elapsed) -> Result<Res, E>;
}

/// Watches one call's time.
pub trait Timer: Sized {
    /// Begins with a call's first attempt; the request's own limits win over the layer's.
    fn start(limits: Limits<'_>) -> Self;

    /// Another attempt goes out.
    fn attempt_started(self: Pin<&mut Self>);

    /// Ready when a limit has run out; the attempt's counts only while one is in flight.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, in_flight: bool) -> Poll<Elapsed>;
}

/// A call's time limits: the layer's, and the request's own.
#[derive(Debug)]
pub struct Limits<'a> {
    pub(crate) knobs: &'a Knobs,
    pub(crate) deadline: Option<Deadline>,
    pub(crate) expiry: Option<Deadline>,
}

impl Timer for () {
    fn start(_: Limits<'_>) {}

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
