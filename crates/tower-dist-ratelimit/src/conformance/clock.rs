use std::time::Duration;

use crate::backend::BoxFuture;

/// The clock of a backend, as far as the kit can control it.
pub trait Clock: Send + Sync + 'static {
    /// Lets this much time pass, or slightly more if the clock cannot be paused.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// Returns the maximum difference between this clock and the kit's: rounding and drift. The kit measures the time
    /// of the answers itself. Zero if time passes only in [`pass`](Self::pass).
    fn grain(&self) -> Duration;
}

/// Waits on tokio's timer, for backends with a clock of their own.
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
    /// A clock of this [grain](Clock::grain), at least 1 ms, the resolution of tokio's timer.
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
