use std::time::Duration;

use crate::backend::BoxFuture;

/// A control of the clock that the tested backends use.
pub trait Clock: Send + Sync + 'static {
    /// Waits until `time` has passed on the backend's clock, or advances a paused clock by `time`. With a clock that
    /// cannot be paused, slightly more time may pass.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Returns the maximum difference between the time that passes on the backend's clock and on tokio's clock during a
    /// check, from rounding and drift. Return zero if time passes only in [`pass`](Self::pass). The time that answers
    /// take does not belong to the grain.
    fn grain(&self) -> Duration;
}

/// The clock of a backend whose time cannot be paused, such as a server's. [`pass`](Clock::pass) sleeps on tokio's
/// timer.
///
/// ```
/// use std::time::Duration;
/// use tower_dist_ratelimit::conformance::{Clock, Sleeping};
///
/// let clock = Sleeping::new(Duration::from_millis(2));
/// assert_eq!(clock.grain(), Duration::from_millis(2));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Sleeping {
    grain: Duration,
}

impl Sleeping {
    /// A clock with this [grain](Clock::grain). A grain below 1 ms, the resolution of tokio's timer, becomes 1 ms.
    #[must_use]
    pub fn new(grain: Duration) -> Self {
        Self {
            grain: grain.max(Duration::from_millis(1)),
        }
    }
}

impl Clock for Sleeping {
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }

    fn grain(&self) -> Duration {
        self.grain
    }
}
