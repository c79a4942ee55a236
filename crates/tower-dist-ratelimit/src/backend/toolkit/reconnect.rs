use std::{fmt, sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower_jitter_retry::{Backoff, Schedule};

use super::{ConnectError, Health, connect_within};
use crate::backend::BoxFuture;

/// The first and the longest delay of the backoff, before jitter. The first delay is short, so that a restarted server
/// is reached soon. Full jitter halves a delay on average, so at the longest delay at most about two attempts begin per
/// second.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Maximum number of concurrent attempts. Attempts that hang begin 1 s apart, so five begin within the default timeout
/// of 5 s.
const MOST_ATTEMPTS: usize = 5;

/// A function that makes one attempt to connect to the server's present address.
pub type Connector<T> = Arc<dyn Fn() -> BoxFuture<'static, Result<T, ConnectError>> + Send + Sync>;

/// Connects to a server that may be down. Retries with exponential backoff and full jitter. The first delay is at most
/// 50 ms, and each further delay is at most 1 s.
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
    /// A `Reconnect` that calls `connect` for each attempt, and drops an attempt after `timeout`.
    #[must_use]
    pub fn new(connect: Connector<T>, timeout: Duration) -> Self {
        Self {
            connect,
            timeout,
            delays: schedule(),
        }
    }

    /// Starts the backoff again from the first delay. Call this after a connection that worked.
    pub fn reset(&mut self) {
        self.delays = schedule();
    }

    /// Makes attempts until one succeeds, and returns its connection. Records the errors of failed attempts in
    /// `health`. The caller records that the connection is [up](Health::connected). If `health` [is
    /// new](Health::is_new), the first attempt begins immediately; otherwise it begins after a delay.
    ///
    /// A server that hung may recover, but never answer its old connections. So if an attempt has not ended after 1 s,
    /// the next one begins, and both continue. At most five attempts run concurrently. If the future of an attempt
    /// panics, the panic is not recorded.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future cancels its attempts.
    pub async fn run(&mut self, health: &Health) -> T {
        let mut attempts: JoinSet<Result<T, ConnectError>> = JoinSet::new();
        let mut next = Instant::now();
        if !health.is_new() {
            next += self.delay();
        }
        loop {
            tokio::select! {
                biased;
                Some(ended) = attempts.join_next() => match ended {
                    Ok(Ok(made)) => return made,
                    Ok(Err(error)) => {
                        health.disconnected(error.to_string());
                        next = next.min(Instant::now() + self.delay());
                    }
                    // Either the runtime shuts down, which also drops this future, or the attempt panicked.
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
        f.debug_struct("Reconnect").finish_non_exhaustive()
    }
}
