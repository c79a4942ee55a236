use std::{sync::Arc, time::Duration};

use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};
use tower_jitter_retry::{Backoff, Schedule};

use super::{BoxFuture, ConnectError, health::Health, patience::within};

/// The first delay after a failure, and the longest. A server that restarts is reached soon after it listens, and one
/// that stays down sees two attempts a second from each client.
pub(super) const FIRST_DELAY: Duration = Duration::from_millis(50);
pub(super) const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// The most attempts at the same time: as many as the default deadline of 5 s allows.
const MOST_ATTEMPTS: usize = 5;

/// Makes one attempt to connect, to the server's present address.
pub(super) type Connect<T> =
    Arc<dyn Fn() -> BoxFuture<'static, Result<T, ConnectError>> + Send + Sync>;

/// Connects to a server that may be down, again and again.
pub(super) struct Reconnect<T> {
    connect: Connect<T>,
    /// How long one attempt may take.
    deadline: Duration,
    delays: Schedule,
}

impl<T: Send + 'static> Reconnect<T> {
    pub(super) fn new(connect: Connect<T>, deadline: Duration) -> Self {
        Self {
            connect,
            deadline,
            delays: schedule(),
        }
    }

    /// Starts again with the first delay.
    pub(super) fn reset(&mut self) {
        self.delays = schedule();
    }

    /// Connects, however many attempts that takes: the first one at once if there never was a connection. Tells `health`
    /// why an attempt failed.
    ///
    /// An attempt that hangs does not block the next one: a server that accepts connections and stays silent may recover
    /// without ever answering the old ones. So the next attempt starts after [`LONGEST_DELAY`], beside the first.
    pub(super) async fn run(&mut self, health: &Health) -> T {
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
                    attempts.spawn(within(self.deadline, "connecting again", (self.connect)()));
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
