use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep};
use tower_jitter_retry::Backoff;

use super::{
    ConnectError, batch::Pending, combiner::Combiner, failure::Failure, outbox::Outbox, wire::Wire,
    work::Work,
};
use crate::backend::{BoxFuture, health::Health, patience::Patience};

/// Before the first attempt to connect again, and at most. A server that restarts is missed for no longer than it
/// takes, and one that is gone sees two attempts a second and client, spread at random.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Makes a connection; again and again, to wherever the server is then.
pub(super) type Connect =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Wire, ConnectError>> + Send + Sync>;

/// A server that is kept connected to: a handle on the task that does it. The task ends with the last handle, once
/// what was sent is answered.
#[derive(Clone, Debug)]
pub(super) struct Link(Arc<Handle>);

/// What all handles share.
#[derive(Debug)]
struct Handle {
    outbox: Arc<Outbox>,
    health: Arc<Health>,
}

impl Link {
    /// Connects, however long that takes, and goes on doing so.
    pub(super) async fn new(connect: Connect, patience: Patience) -> Result<Self, ConnectError> {
        let wire = connect().await?;
        Ok(Self::on(wire, Some(connect), patience))
    }

    /// To be connected to in the background; until then it is down.
    pub(super) fn later(connect: Connect, patience: Patience) -> Self {
        let (link, supervisor) = Self::parts(Some(connect), patience);
        link.0.health.wait();
        tokio::spawn(supervisor.run(None));
        link
    }

    /// On this connection, and on those made later.
    pub(super) fn on(wire: Wire, connect: Option<Connect>, patience: Patience) -> Self {
        let (link, supervisor) = Self::parts(connect, patience);
        supervisor.outbox.open();
        tokio::spawn(supervisor.run(Some(wire)));
        link
    }

    fn parts(connect: Option<Connect>, patience: Patience) -> (Self, Supervisor) {
        let health = Arc::new(Health::up());
        let outbox = Arc::new(Outbox::new(Arc::clone(&health)));
        let supervisor = Supervisor {
            connect,
            patience,
            health: Arc::clone(&health),
            outbox: Arc::clone(&outbox),
        };
        (Self(Arc::new(Handle { outbox, health })), supervisor)
    }

    /// Sends a call. What is returned can be dropped at any time.
    pub(super) fn send(&self, work: Work) -> Result<Pending, Failure> {
        self.0.outbox.post(work)
    }

    pub(super) fn is_up(&self) -> bool {
        self.0.health.is_up()
    }

    /// Waits for a connection that is being made for the first time.
    pub(super) async fn ready(&self, patience: Duration) -> Result<(), Failure> {
        let health = &self.0.health;
        // None if that is beyond all time.
        let end = Instant::now().checked_add(patience);
        let in_time = || end.is_none_or(|end| Instant::now() < end);
        while !health.is_up() && health.is_new() && in_time() {
            sleep(Duration::from_millis(1)).await;
        }
        if health.is_up() {
            Ok(())
        } else {
            Err(Failure::NotConnected(health.reason().into()))
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.outbox.close();
    }
}

async fn attempt(connect: &Connect, patience: Patience) -> Result<Wire, ConnectError> {
    tokio::time::timeout(patience.connect, connect())
        .await
        .unwrap_or_else(|_| {
            let problem = format!("no answer within {:?}", patience.connect);
            Err(ConnectError::new("connecting again", problem))
        })
}

/// The task behind a link.
struct Supervisor {
    connect: Option<Connect>,
    patience: Patience,
    health: Arc<Health>,
    outbox: Arc<Outbox>,
}

impl Supervisor {
    async fn run(self, mut wire: Option<Wire>) {
        let backoff = Backoff::exponential(FIRST_DELAY, LONGEST_DELAY);
        let mut delays = backoff.schedule();
        loop {
            if let Some(wire) = wire.take() {
                self.outbox.open();
                self.health.rise();
                let reconnects = self.connect.is_some();
                let mut combiner =
                    Combiner::new(&self.outbox, wire, self.patience.answer, reconnects);
                let Some(end) = combiner.run().await else {
                    return;
                };
                if end.had_answers {
                    delays = backoff.schedule();
                }
                self.fall(end.reason);
            }
            let Some(connect) = &self.connect else {
                return;
            };
            let first = self.health.is_new();
            let delay = if first {
                Duration::ZERO
            } else {
                delays.next().unwrap_or(LONGEST_DELAY)
            };
            let connecting = async {
                sleep(delay).await;
                attempt(connect, self.patience).await
            };
            tokio::select! {
                made = connecting => match made {
                    Ok(made) => wire = Some(made),
                    Err(error) => self.health.fall(error.to_string()),
                },
                () = self.outbox.closed() => return,
            }
        }
    }

    /// There is no connection, and this is why: first that, since those who wait are told.
    fn fall(&self, reason: String) {
        self.health.fall(reason);
        self.outbox.shut();
    }
}

impl Drop for Supervisor {
    /// When nobody is left to send, nobody reads this. Else the task has gone with its runtime.
    fn drop(&mut self) {
        self.fall("the tokio runtime that it was made on has ended".to_owned());
    }
}

#[cfg(test)]
mod tests;
