use std::time::Duration;

use crate::backend::BoxFuture;

/// The clock that a backend decides by, as far as the kit can reach it.
pub trait Clock: Send + Sync + 'static {
    /// Lets this much time pass, or a little more where that is all that can be done.
    fn pass(&self, time: Duration) -> BoxFuture<'_, ()>;

    /// How much more or less time can have passed by this clock than has by the kit's: what it rounds to, and how it
    /// drifts. How long answers take does not count, since the kit measures that. Zero if time passes only when the kit
    /// says so.
    fn grain(&self) -> Duration;
}

/// Waits on tokio's timer: for backends whose clock is somewhere else.
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
    /// A clock of this [grain](Clock::grain), of at least a millisecond, which is what tokio's timer rounds to.
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
