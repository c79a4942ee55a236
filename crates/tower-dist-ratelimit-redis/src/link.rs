use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::{Instant, sleep};
use tower_dist_ratelimit::backend::{
    BoxFuture,
    toolkit::{Connector, Health, Reconnect, Timeouts},
};

use super::{
    batch::PendingReply,
    combiner::Combiner,
    connection::{CommandSender, Connection},
    failure::Failure,
    queued_call::QueuedCall,
    send_queue::SendQueue,
};

/// A function that makes one attempt to connect. Each attempt looks up the server's address.
pub(super) type Connect = Connector<Connection>;

/// A handle on the task that sends calls to a server. The task ends when the last handle was dropped and the calls in
/// flight have ended.
#[derive(Clone)]
pub(super) struct Link(Arc<Handle>);

struct Handle(Arc<SharedLink>);

/// State that the handles and the task share.
struct SharedLink {
    send_queue: SendQueue,
    health: Arc<Health>,
    /// The present connection, if there is one.
    open: Mutex<Option<Arc<dyn CommandSender>>>,
}

impl Link {
    /// Spawns the link's task. The link uses `connection` first, then the connections that `connect` makes. Without a
    /// `connection`, the link is down until `connect` succeeds.
    pub(super) fn new(
        connection: Option<Connection>,
        connect: Option<Connect>,
        timeouts: Timeouts,
    ) -> Self {
        let health = Arc::new(match connection {
            Some(_) => Health::up(),
            None => Health::waiting(),
        });
        let shared = Arc::new(SharedLink {
            send_queue: SendQueue::new(Arc::clone(&health)),
            health,
            open: Mutex::default(),
        });
        if let Some(connection) = &connection {
            shared.connected(connection);
        }
        let supervisor = Supervisor {
            reconnect: connect.map(|connect| Reconnect::new(connect, timeouts.connect)),
            timeout: timeouts.answer,
            shared: Arc::clone(&shared),
        };
        let task: BoxFuture<'static, ()> = Box::pin(supervisor.run(connection));
        tokio::spawn(task);
        Self(Arc::new(Handle(shared)))
    }

    fn shared(&self) -> &SharedLink {
        &self.0.0
    }

    /// Sends a call. The returned future can be dropped at any time.
    pub(super) fn send(&self, queued: QueuedCall) -> Result<PendingReply, Failure> {
        self.shared().send_queue.enqueue(queued)
    }

    pub(super) fn is_up(&self) -> bool {
        self.shared().health.is_up()
    }

    /// Returns the present connection, for a command outside of the send queue.
    pub(super) fn commands(&self) -> Option<Arc<dyn CommandSender>> {
        self.shared().open().clone()
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Waits at most `timeout` while no attempt to connect has ended. Fails if the link is then not connected.
    pub(super) async fn ready(&self, timeout: Duration) -> Result<(), Failure> {
        let health = &self.shared().health;
        // `None` means no deadline: the timeout exceeds the clock's range.
        let end = Instant::now().checked_add(timeout);
        let in_time = || end.is_none_or(|end| Instant::now() < end);
        while !health.is_up() && health.is_new() && in_time() {
            sleep(Duration::from_millis(1)).await;
        }
        match health.is_up() {
            true => Ok(()),
            false => Err(Failure::NotConnected(health.reason().into())),
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.send_queue.close();
    }
}

impl SharedLink {
    fn open(&self) -> MutexGuard<'_, Option<Arc<dyn CommandSender>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a new connection.
    fn connected(&self, connection: &Connection) {
        *self.open() = Some(Arc::clone(&connection.commands));
        self.send_queue.open();
        self.health.connected();
    }

    /// Records that there is no connection. Sets the reason first, because pending requests fail with the last recorded
    /// reason.
    fn disconnected(&self, reason: String) {
        self.health.disconnected(reason);
        *self.open() = None;
        self.send_queue.disconnect();
    }
}

/// The task behind a link.
struct Supervisor {
    reconnect: Option<Reconnect<Connection>>,
    /// Maximum time for an answer.
    timeout: Duration,
    shared: Arc<SharedLink>,
}

impl Supervisor {
    async fn run(mut self, mut connection: Option<Connection>) {
        let shared = &*self.shared;
        loop {
            if let Some(connection) = connection.take() {
                shared.connected(&connection);
                let reconnects = self.reconnect.is_some();
                let mut combiner =
                    Combiner::new(&shared.send_queue, connection, self.timeout, reconnects);
                let Some(end) = combiner.run().await else {
                    return;
                };
                shared.disconnected(end.reason);
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
                biased;
                // First, so that no attempt begins once all handles were dropped.
                () = shared.send_queue.closed() => return,
                made = reconnect.run(&shared.health) => connection = Some(made),
            }
        }
    }
}

impl Drop for Supervisor {
    /// Fails the unsent requests and all later requests. If handles remain at this point, usually the task's runtime
    /// has ended.
    fn drop(&mut self) {
        let reason = "the tokio runtime that it was made on has ended";
        self.shared.disconnected(reason.to_owned());
    }
}

#[cfg(test)]
mod tests;
