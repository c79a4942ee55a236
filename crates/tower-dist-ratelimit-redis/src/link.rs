use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::backend::toolkit::{Connector, Health, Reconnect, Timeouts};

use super::{
    batch::Pending,
    combiner::Combiner,
    failure::Failure,
    outbox::Outbox,
    wire::{Commands, Wire},
    work::Work,
};

/// Makes one attempt to connect, to the server's present address.
pub(super) type Connect = Connector<Wire>;

/// A handle on the task that keeps a server connected. The task ends after the last handle, when the calls in flight are
/// answered.
#[derive(Clone)]
pub(super) struct Link(Arc<Handle>);

/// State that all handles share.
struct Handle {
    outbox: Arc<Outbox>,
    health: Arc<Health>,
    open: Arc<Open>,
}

/// The present connection, if there is one.
type Open = Mutex<Option<Arc<dyn Commands>>>;

impl Link {
    /// Connects in the background; until then it is down.
    pub(super) fn later(connect: Connect, timeouts: Timeouts) -> Self {
        Self::spawn(Health::waiting(), None, Some(connect), timeouts)
    }

    /// Uses this connection first, and later the connections that `connect` makes.
    pub(super) fn on(wire: Wire, connect: Option<Connect>, timeouts: Timeouts) -> Self {
        Self::spawn(Health::up(), Some(wire), connect, timeouts)
    }

    fn spawn(
        health: Health,
        wire: Option<Wire>,
        connect: Option<Connect>,
        timeouts: Timeouts,
    ) -> Self {
        let health = Arc::new(health);
        let outbox = Arc::new(Outbox::new(Arc::clone(&health)));
        let supervisor = Supervisor {
            reconnect: connect.map(|connect| Reconnect::new(connect, timeouts.connect)),
            timeouts,
            health: Arc::clone(&health),
            outbox: Arc::clone(&outbox),
            open: Arc::default(),
        };
        if let Some(wire) = &wire {
            supervisor.rise(wire);
        }
        let open = Arc::clone(&supervisor.open);
        tokio::spawn(supervisor.run(wire));
        Self(Arc::new(Handle {
            outbox,
            health,
            open,
        }))
    }

    /// Sends a call. The returned future can be dropped at any time.
    pub(super) fn send(&self, work: Work) -> Result<Pending, Failure> {
        self.0.outbox.post(work)
    }

    pub(super) fn is_up(&self) -> bool {
        self.0.health.is_up()
    }

    /// The present connection, for a command outside of the outbox.
    pub(super) fn commands(&self) -> Option<Arc<dyn Commands>> {
        self.0
            .open
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits for a connection that is being made for the first time.
    pub(super) async fn ready(&self, timeout: Duration) -> Result<(), Failure> {
        let health = &self.0.health;
        // None if that is beyond all time.
        let end = Instant::now().checked_add(timeout);
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

/// The task behind a link.
struct Supervisor {
    reconnect: Option<Reconnect<Wire>>,
    timeouts: Timeouts,
    health: Arc<Health>,
    outbox: Arc<Outbox>,
    open: Arc<Open>,
}

impl Supervisor {
    async fn run(mut self, mut wire: Option<Wire>) {
        loop {
            if let Some(wire) = wire.take() {
                self.rise(&wire);
                let reconnects = self.reconnect.is_some();
                let mut combiner =
                    Combiner::new(&self.outbox, wire, self.timeouts.answer, reconnects);
                let Some(end) = combiner.run().await else {
                    return;
                };
                self.fall(end.reason);
                if let Some(reconnect) = &mut self.reconnect
                    && end.had_answers
                {
                    reconnect.reset();
                }
            }
            let Some(reconnect) = &mut self.reconnect else {
                return;
            };
            tokio::select! {
                made = reconnect.run(&self.health) => wire = Some(made),
                () = self.outbox.closed() => return,
            }
        }
    }

    fn rise(&self, wire: &Wire) {
        self.set_open(Some(Arc::clone(&wire.commands)));
        self.outbox.open();
        self.health.rise();
    }

    /// Records that there is no connection, and why. The reason comes first, because pending requests fail with it.
    fn fall(&self, reason: String) {
        self.health.fall(reason);
        self.set_open(None);
        self.outbox.shut();
    }

    fn set_open(&self, commands: Option<Arc<dyn Commands>>) {
        *self.open.lock().unwrap_or_else(PoisonError::into_inner) = commands;
    }
}

impl Drop for Supervisor {
    /// If handles are left, the task has ended with its runtime.
    fn drop(&mut self) {
        self.fall("the tokio runtime that it was made on has ended".to_owned());
    }
}

#[cfg(test)]
mod tests;
