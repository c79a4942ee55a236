use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use pin_project::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tower_attempt::{Deadline, Elapsed};

use super::Timer;
use crate::settings::Config;

/// Limits of a century or longer are ignored. Instants near the end of their range would overflow in tokio's timer.
const CENTURY: Duration = Duration::from_secs(100 * 366 * 24 * 3600);

/// Watches hard time limits, which end an attempt in flight.
///
/// One tokio timer serves the limits of the attempt and of the call. It is created when a limit is first checked, and
/// is moved to the limit that expires next.
#[pin_project]
#[derive(Debug)]
pub struct HardTimer {
    start: Instant,
    call_end: Option<Instant>,
    attempt_start: Instant,
    attempt_limit: Option<Duration>,
    #[pin]
    timer: Option<Sleep>,
}

impl Timer for HardTimer {
    fn start(config: &Config, deadline: Option<Deadline>, expiry: Option<Deadline>) -> Self {
        let start = Instant::now();
        let own = config.deadline.and_then(|limit| start.checked_add(limit));
        let own = own.map_or(Deadline::NEVER, Deadline::at);
        let call_end = deadline.unwrap_or(own).or_earlier(expiry);
        Self {
            start,
            call_end: call_end.instant(),
            attempt_start: start,
            attempt_limit: config.attempt_timeout,
            timer: None,
        }
    }

    fn attempt_started(self: Pin<&mut Self>) {
        *self.project().attempt_start = Instant::now();
    }

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>, in_flight: bool) -> Poll<Elapsed> {
        let mut this = self.project();
        let start = *this.start;
        let call = this.call_end.map(|end| {
            let limit = end.duration_since(start);
            (end, Elapsed::Call(limit))
        });
        let attempt = this.attempt_limit.filter(|_| in_flight).and_then(|limit| {
            let end = this.attempt_start.checked_add(limit)?;
            Some((end, Elapsed::Attempt(limit)))
        });
        let first = call.into_iter().chain(attempt).min_by_key(|(end, _)| *end);
        let Some((end, elapsed)) = first.filter(|(end, _)| end.duration_since(start) < CENTURY)
        else {
            return Poll::Pending;
        };
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
