use std::{sync::Arc, time::Duration};

use redis::Cmd;
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, sleep},
};
use tower_jitter_retry::Backoff;

use super::{
    ConnectError, batch::Answer, call::Call, combiner::Combiner, failure::Failure, reply::Words,
    wire::Wire,
};
use crate::backend::{BoxFuture, health::Health};

/// How many calls wait to be taken up by the task. More than any service has requests at once; beyond it they fail at
/// once rather than pile up in front of a server that does not answer.
const INBOX: usize = 8192;

/// Before the first attempt to connect again, and at most. A server that restarts is missed for no longer than it
/// takes, and one that is gone sees two attempts a second and client, spread at random.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Makes a connection; again and again, to wherever the server is then.
pub(super) type Connect =
    Arc<dyn Fn() -> BoxFuture<'static, Result<Wire, ConnectError>> + Send + Sync>;

/// One call, on its way to a server.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) answer: Answer,
}

#[derive(Clone, Debug)]
pub(super) enum Work {
    /// With others to this script of keys in this slot, which is zero unless the server is one of a Cluster.
    Decide { call: Call, slot: u16, how: How },
    /// As it is.
    Command { command: Cmd, how: How },
}

/// In what company a call goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    Together,
    /// Alone: keys of a slot that moves are not all in one place.
    Alone,
    /// Alone, to a server that does not have the slot yet.
    Asking,
}

impl Work {
    pub(super) fn how(mut self, to: How) -> Self {
        match &mut self {
            Self::Decide { how, .. } | Self::Command { how, .. } => *how = to,
        }
        self
    }
}

/// How long to wait for a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    /// For a connection.
    pub(super) connect: Duration,
    /// For an answer.
    pub(super) answer: Duration,
}

/// A server that is kept connected to: a handle on the task that does it. The task ends with the last handle, once
/// what was sent is answered.
#[derive(Clone, Debug)]
pub(super) struct Link {
    inbox: mpsc::Sender<Job>,
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
        let (link, inbox) = Self::parts();
        link.health.wait();
        let supervisor = Supervisor {
            connect: Some(connect),
            patience,
            health: Arc::clone(&link.health),
            inbox,
        };
        tokio::spawn(supervisor.run(None));
        link
    }

    /// On this connection, and on those made later.
    pub(super) fn on(wire: Wire, connect: Option<Connect>, patience: Patience) -> Self {
        let (link, inbox) = Self::parts();
        let supervisor = Supervisor {
            connect,
            patience,
            health: Arc::clone(&link.health),
            inbox,
        };
        tokio::spawn(supervisor.run(Some(wire)));
        link
    }

    fn parts() -> (Self, mpsc::Receiver<Job>) {
        let (sender, inbox) = mpsc::channel(INBOX);
        let health = Arc::new(Health::up());
        let link = Self {
            inbox: sender,
            health,
        };
        (link, inbox)
    }

    /// Sends a call. What is returned can be dropped at any time.
    pub(super) fn send(&self, work: Work) -> Result<Pending, Failure> {
        if !self.health.is_up() {
            return Err(self.lost());
        }
        let (answer, receiver) = oneshot::channel();
        match self.inbox.try_send(Job { work, answer }) {
            Ok(()) => Ok(Pending {
                receiver,
                health: Arc::clone(&self.health),
            }),
            Err(mpsc::error::TrySendError::Full(_)) => {
                Err(Failure::new(format_args!("{INBOX} calls wait already")))
            }
            Err(mpsc::error::TrySendError::Closed(_)) => Err(self.lost()),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.health.is_up()
    }

    /// Waits for a connection that is being made for the first time.
    pub(super) async fn ready(&self, patience: Duration) -> Result<(), Failure> {
        // None if that is beyond all time.
        let end = Instant::now().checked_add(patience);
        let in_time = || end.is_none_or(|end| Instant::now() < end);
        while !self.health.is_up() && self.health.is_new() && in_time() {
            sleep(Duration::from_millis(1)).await;
        }
        if self.is_up() {
            Ok(())
        } else {
            Err(self.lost())
        }
    }

    fn lost(&self) -> Failure {
        lost(&self.health)
    }
}

fn lost(health: &Health) -> Failure {
    Failure::NotConnected(health.reason().into())
}

/// A call that was sent.
#[derive(Debug)]
pub(super) struct Pending {
    receiver: oneshot::Receiver<Result<Words, Failure>>,
    health: Arc<Health>,
}

impl Pending {
    pub(super) async fn answer(self) -> Result<Words, Failure> {
        self.receiver
            .await
            .unwrap_or_else(|_| Err(lost(&self.health)))
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
    inbox: mpsc::Receiver<Job>,
}

impl Supervisor {
    async fn run(mut self, mut wire: Option<Wire>) {
        let backoff = Backoff::exponential(FIRST_DELAY, LONGEST_DELAY);
        let mut delays = backoff.schedule();
        loop {
            if let Some(wire) = wire.take() {
                self.health.rise();
                let reconnects = self.connect.is_some();
                let mut combiner = Combiner::new(wire, self.patience.answer, reconnects);
                let Some(end) = combiner.run(&mut self.inbox).await else {
                    return;
                };
                if end.had_answers {
                    delays = backoff.schedule();
                }
                self.health.fall(end.reason);
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
                () = refuse(&mut self.inbox, &self.health) => return,
            }
        }
    }
}

impl Drop for Supervisor {
    /// When nobody is left to send, nobody reads this. Else the task has gone with its runtime.
    fn drop(&mut self) {
        let reason = "the tokio runtime that it was made on has ended";
        self.health.fall(reason.to_owned());
    }
}

/// Fails what was sent just before the connection was lost; returns when nobody is left to send.
async fn refuse(inbox: &mut mpsc::Receiver<Job>, health: &Health) {
    while let Some(job) = inbox.recv().await {
        let _ = job.answer.send(Err(lost(health)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_first_connection_can_be_waited_for_without_end() {
        let connect: Connect = Arc::new(|| {
            Box::pin(async {
                sleep(Duration::from_secs(10)).await;
                Err(ConnectError::new("nobody", "is there"))
            })
        });
        let patience = Patience {
            connect: Duration::MAX,
            answer: Duration::MAX,
        };
        let link = Link::later(connect, patience);
        let began = Instant::now();
        let failure = link.ready(patience.connect).await.unwrap_err();
        assert!(matches!(failure, Failure::NotConnected(why) if &*why == "nobody: is there"));
        assert!(began.elapsed() >= Duration::from_secs(10));
    }
}
