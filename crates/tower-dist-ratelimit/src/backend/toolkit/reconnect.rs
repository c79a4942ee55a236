use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower_jitter_retry::{Backoff, Schedule};

use super::{ConnectError, Health, connect_within};
use crate::backend::BoxFuture;

/// The first and the longest delay after a failure. A server that restarts is reached soon after it listens. A
/// server that stays down sees two attempts a second from each client.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent attempts: as many as begin within the default timeout of 5 s.
const MOST_ATTEMPTS: usize = 5;

/// Makes one attempt to connect to the server's present address.
pub type Connector<T> = Arc<dyn Fn() -> BoxFuture<'static, Result<T, ConnectError>> + Send + Sync>;

/// Connects to a server that may be down, and retries with jittered exponential backoff from 50 ms to 1 s.
///
/// ```
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() {
/// use std::{sync::{Arc, atomic::{AtomicU32, Ordering}}, time::Duration};
/// use tower_dist_ratelimit::backend::toolkit::{ConnectError, Connector, Health, Reconnect};
///
/// // A server that accepts the third connection.
/// let attempts = AtomicU32::new(0);
/// let connector: Connector<u32> = Arc::new(move || {
///     let attempt = attempts.fetch_add(1, Ordering::Relaxed) + 1;
///     Box::pin(async move { if attempt < 3 { Err(ConnectError::new("cache", "refuses")) } else { Ok(attempt) } })
/// });
/// let health = Health::waiting();
/// let connection = Reconnect::new(connector, Duration::from_secs(5)).run(&health).await;
/// assert_eq!((connection, &*health.reason()), (3, "cache: refuses"));
/// # }
/// ```
pub struct Reconnect<T> {
    connect: Connector<T>,
    timeout: Duration,
    delays: Schedule,
}

impl<T: Send + 'static> Reconnect<T> {
    /// Connects with `connect`. One attempt takes at most `timeout`.
    #[must_use]
    pub fn new(connect: Connector<T>, timeout: Duration) -> Self {
        Self {
            connect,
            timeout,
            delays: schedule(),
        }
    }

    /// Makes the next delay the first one again: call this after a connection that has worked.
    pub fn reset(&mut self) {
        self.delays = schedule();
    }

    /// Connects, however many attempts that takes, and records in `health` why an attempt failed. The caller records
    /// that the connection is [up](Health::rise). The first attempt begins immediately if `health` [is
    /// new](Health::is_new).
    ///
    /// An attempt that hangs does not block the next one: a server that accepts connections and stays silent may recover
    /// without ever answering the old ones. So the next attempt begins after 1 s, while the first one runs; at most five run
    /// concurrently.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future drops its attempts.
    pub async fn run(&mut self, health: &Health) -> T {
        let delay = match health.is_new() {
            true => Duration::ZERO,
            false => self.delay(),
        };
        let mut attempts: JoinSet<Result<T, ConnectError>> = JoinSet::new();
        let mut next = Instant::now() + delay;
        loop {
            tokio::select! {
                biased;
                Some(ended) = attempts.join_next() => match ended {
                    Ok(Ok(made)) => return made,
                    Ok(Err(error)) => {
                        health.fall(error.to_string());
                        next = next.min(Instant::now() + self.delay());
                    }
                    // Only a runtime that ends cancels an attempt, and it drops this future, too.
                    Err(_) => {}
                },
                () = sleep_until(next), if attempts.len() < MOST_ATTEMPTS => {
                    attempts.spawn(connect_within(self.timeout, "connecting again", (self.connect)()));
                    next = Instant::now() + LONGEST_DELAY;
                }
            }
        }
    }

    fn delay(&mut self) -> Duration {
        self.delays.next().unwrap_or(LONGEST_DELAY)
    }
}

fn schedule() -> Schedule {
    Backoff::exponential(FIRST_DELAY, LONGEST_DELAY).schedule()
}

impl<T> fmt::Debug for Reconnect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reconnect")
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}
