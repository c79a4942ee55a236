mod clock;

use std::pin::Pin;
use std::task::{Context, Poll};

use tower_attempt::{Deadline, Elapsed, TimedOut};

use self::clock::HardTimer;
use crate::settings::Config;

/// Marks a layer without time limits that end an attempt in flight.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTimeLimit;

/// Marks a layer that can end an attempt in flight, with the standard outcome of a timeout.
///
/// For gRPC the outcome is DEADLINE_EXCEEDED. Otherwise the service's error type creates the outcome; see
/// [`TimeoutAnswer`](crate::TimeoutAnswer).
#[derive(Clone, Copy, Debug, Default)]
pub struct StandardAnswer;

/// Marks a layer that can end an attempt in flight, with the outcome of an
/// [`on_timeout`](crate::RetryLayerBuilder::on_timeout) closure.
#[derive(Clone, Copy, Debug)]
pub struct OnTimeout<F>(pub(crate) F);

/// Whether a layer enforces hard time limits, which end an attempt in flight.
pub trait Limited {
    /// The timer of one call.
    type Timer: Timer;
    /// This type with hard time limits turned on.
    type Hard: Limited<Timer = HardTimer>;

    /// Whether the layer enforces hard time limits.
    const IS_HARD: bool = true;

    /// Turns hard time limits on.
    fn hard(self) -> Self::Hard;
}

/// Creates the outcome of an expired time limit, for a protocol of type `P`.
pub trait TimeLimit<P, Res, E>: Limited {
    /// Returns the outcome that the caller receives if no retry is scheduled.
    fn answer(&self, elapsed: Elapsed) -> Result<Res, E>;
}

/// The timer of one call's hard time limits, which end an attempt in flight.
pub trait Timer: Sized {
    /// Starts the timer at a call's first attempt.
    ///
    /// `deadline` comes from the request's [`RetryOverride`](crate::RetryOverride), and replaces the layer's deadline.
    /// `expiry` comes from the protocol, such as the end of a `grpc-timeout`, and can only shorten the call.
    fn start(config: &Config, deadline: Option<Deadline>, expiry: Option<Deadline>) -> Self;

    /// Restarts the attempt timeout for the next attempt.
    fn attempt_started(self: Pin<&mut Self>);

    /// Returns `Ready` if a limit has expired. The timeout of an attempt counts only if `in_flight` is true.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, in_flight: bool) -> Poll<Elapsed>;
}

impl Timer for () {
    fn start(_: &Config, _: Option<Deadline>, _: Option<Deadline>) {}

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
    type Timer = HardTimer;
    type Hard = Self;

    fn hard(self) -> Self {
        self
    }
}

impl<F> Limited for OnTimeout<F> {
    type Timer = HardTimer;
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
