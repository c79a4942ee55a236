use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
};
use tower_dist_ratelimit::backend::toolkit::{
    Address, ConnectError, Health, Reconnect, Timeouts, connect_within,
};

use super::{
    clock,
    failure::Failure,
    job::Job,
    pipe::{End, Pipe},
    wire,
};

/// How many requests wait to be taken up by the task. More than any service has at once; beyond it they fail at once
/// rather than pile up in front of a server that does not answer.
const INBOX: usize = 8192;

/// Where a server is, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) prefix: Arc<str>,
    pub(super) timeouts: Timeouts,
}

/// A server that is kept connected to: a handle on the task that does it. The task ends with the last handle, once what
/// was sent is answered.
#[derive(Clone, Debug)]
pub(super) struct Link {
    inbox: mpsc::Sender<Job>,
    health: Arc<Health>,
}

impl Link {
    /// Connects, and goes on doing so.
    pub(super) async fn new(target: Target) -> Result<Self, ConnectError> {
        let Target {
            address,
            prefix,
            timeouts,
        } = &target;
        let stream = connect_within(timeouts.connect, address, wire::dial(address, prefix)).await?;
        Ok(Self::spawn(target, Health::up(), Some(stream)))
    }

    /// Connects in the background; until then it is down.
    pub(super) fn later(target: Target) -> Self {
        Self::spawn(target, Health::waiting(), None)
    }

    fn spawn(target: Target, health: Health, stream: Option<TcpStream>) -> Self {
        let (sender, inbox) = mpsc::channel(INBOX);
        let health = Arc::new(health);
        let timeouts = target.timeouts;
        let connect = Arc::new(move || {
            let target = target.clone();
            Box::pin(async move { wire::dial(&target.address, &target.prefix).await }) as _
        });
        let supervisor = Supervisor {
            reconnect: Reconnect::new(connect, timeouts.connect),
            timeout: timeouts.answer,
            health: Arc::clone(&health),
            inbox,
        };
        tokio::spawn(supervisor.run(stream));
        Self {
            inbox: sender,
            health,
        }
    }

    /// Asks; the job has where to answer.
    pub(super) fn send(&self, job: Job) -> Result<(), Failure> {
        self.check()?;
        self.inbox.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Failure::busy(format_args!("{INBOX} requests wait already"))
            }
            mpsc::error::TrySendError::Closed(_) => self.lost(),
        })
    }

    /// Fails while there is no connection.
    pub(super) fn check(&self) -> Result<(), Failure> {
        match self.health.is_up() {
            true => Ok(()),
            false => Err(self.lost()),
        }
    }

    fn lost(&self) -> Failure {
        lost(&self.health)
    }

    /// Waits for the answer to a job that was sent.
    pub(super) async fn answer<T>(
        receiver: oneshot::Receiver<Result<T, Failure>>,
        health: Arc<Health>,
    ) -> Result<T, Failure> {
        let answer = receiver.await;
        answer.unwrap_or_else(|_| Err(lost(&health)))
    }

    pub(super) fn health(&self) -> Arc<Health> {
        Arc::clone(&self.health)
    }
}

/// Who has lost a connection that is not known to be lost has lost the task.
fn lost(health: &Health) -> Failure {
    match health.is_up() {
        true => Failure::lost("the runtime that it was made on has ended"),
        false => Failure::lost(health.reason()),
    }
}

/// The task behind a link.
struct Supervisor {
    reconnect: Reconnect<TcpStream>,
    /// How long the server may take for an answer.
    timeout: Duration,
    health: Arc<Health>,
    inbox: mpsc::Receiver<Job>,
}

impl Supervisor {
    async fn run(mut self, mut stream: Option<TcpStream>) {
        loop {
            if let Some(stream) = stream.take() {
                self.health.rise();
                let Some(end) = self.serve(stream).await else {
                    return;
                };
                if end.had_answers {
                    self.reconnect.reset();
                }
            }
            tokio::select! {
                made = self.reconnect.run(&self.health) => stream = Some(made),
                () = refuse(&mut self.inbox, &self.health) => return,
            }
        }
    }

    async fn serve(&mut self, stream: TcpStream) -> Option<End> {
        let (read, write) = stream.into_split();
        let mut pipe = Pipe::new(self.timeout, clock::now);
        let end = pipe.run(read, write, &mut self.inbox).await?;
        // Before those who wait are told, which they are when the pipe is dropped.
        self.health.fall(end.reason.clone());
        Some(end)
    }
}

/// Fails what was sent just before the connection was lost; returns when nobody is left to send.
async fn refuse(inbox: &mut mpsc::Receiver<Job>, health: &Health) {
    while let Some(job) = inbox.recv().await {
        job.fail(Failure::lost(health.reason()));
    }
}
