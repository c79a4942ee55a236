use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_attempt::{Deadline, Elapsed};

use super::{Limits, Timer};

/// Longer than any call. A later deadline would overflow tokio's timer.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Watches hard time limits.
///
/// One timer serves the attempt and the call. It is created at the first wait for an attempt, and moved to the limit
/// that expires next.
#[pin_project]
#[derive(Debug)]
pub struct Clock {
    start: Instant,
    call_end: Option<Instant>,
    attempt_limit: Option<Duration>,
    attempt_end: Option<Instant>,
    #[pin]
    timer: Option<Sleep>,
}

impl Timer for Clock {
    fn start(limits: Limits<'_>) -> Self {
        let start = Instant::now();
        let own = limits.knobs.deadline;
        let own = own.and_then(|limit| start.checked_add(limit));
        let own = own.map_or(Deadline::NEVER, Deadline::at);
        let call_end = limits.deadline.unwrap_or(own).or_earlier(limits.expiry);
        let attempt_limit = limits.knobs.attempt_timeout;
        Self {
            start,
            call_end: call_end.instant(),
            attempt_limit,
            attempt_end: attempt_limit.and_then(|limit| start.checked_add(limit)),
            timer: None,
        }
    }

    fn attempt_started(self: Pin<&mut Self>) {
        let this = self.project();
        *this.attempt_end = this
            .attempt_limit
            .and_then(|limit| Instant::now().checked_add(limit));
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, in_flight: bool) -> Poll<Elapsed> {
        let mut this = self.project();
        let attempt_end = this.attempt_end.filter(|_| in_flight);
        let (end, elapsed) = match (*this.call_end, attempt_end, *this.attempt_limit) {
            (Some(call), Some(attempt), Some(limit)) if attempt < call => {
                (attempt, Elapsed::Attempt(limit))
            }
            (Some(call), ..) => (call, Elapsed::Call(call.duration_since(*this.start))),
            (None, Some(attempt), Some(limit)) => (attempt, Elapsed::Attempt(limit)),
            _ => return Poll::Pending,
        };
        if end.duration_since(*this.start) > CENTURY {
            return Poll::Pending;
        }
        match this.timer.as_mut().as_pin_mut() {
            Some(timer) if timer.deadline() == end => {}
            Some(timer) => timer.reset(end),
            None => this.timer.set(Some(sleep_until(end))),
        }
        if let Some(timer) = this.timer.as_pin_mut() {
            ready!(timer.poll(cx));
        }
        Poll::Ready(elapsed)
    }
}
