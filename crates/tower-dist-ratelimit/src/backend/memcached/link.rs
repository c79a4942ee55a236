use std::{sync::Arc, time::Duration};

use tokio::{
    net::TcpStream,
    sync::{mpsc, oneshot},
    time::sleep,
};
use tower_jitter_retry::Backoff;

use super::{
    clock,
    failure::Failure,
    job::Job,
    pipe::{End, Pipe},
    wire,
};
use crate::backend::{
    BackendError, ConnectError, Verdict, address::Address, health::Health, patience::Patience,
};

/// How many requests wait to be taken up by the task. More than any service has at once; beyond it they fail at once
/// rather than pile up in front of a server that does not answer.
const INBOX: usize = 8192;

/// Before the first attempt to connect again, and at most. A server that restarts is missed for no longer than it
/// takes, and one that is gone sees two attempts a second and client, spread at random.
const FIRST_DELAY: Duration = Duration::from_millis(50);
const LONGEST_DELAY: Duration = Duration::from_secs(1);

/// Where a server is, and how to get there.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: Address,
    pub(super) prefix: Arc<str>,
    pub(super) patience: Patience,
}

impl Target {
    async fn dial(&self) -> Result<TcpStream, ConnectError> {
        let patience = self.patience.connect;
        let dialing = wire::dial(&self.address, &self.prefix);
        tokio::time::timeout(patience, dialing)
            .await
            .unwrap_or_else(|_| {
                let problem = format!("no answer within {patience:?}");
                Err(ConnectError::new(&self.address, problem))
            })
    }
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
        let stream = target.dial().await?;
        let (sender, inbox) = mpsc::channel(INBOX);
        let health = Arc::new(Health::up());
        let supervisor = Supervisor {
            target,
            health: Arc::clone(&health),
            inbox,
        };
        tokio::spawn(supervisor.run(stream));
        Ok(Self {
            inbox: sender,
            health,
        })
    }

    /// Asks; the job has where to answer.
    pub(super) fn send(&self, job: Job) -> Result<(), Failure> {
        if !self.health.is_up() {
            return Err(self.lost());
        }
        self.inbox.try_send(job).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                Failure::new(format_args!("{INBOX} requests wait already"))
            }
            mpsc::error::TrySendError::Closed(_) => self.lost(),
        })
    }

    fn lost(&self) -> Failure {
        lost(&self.health)
    }

    /// What a question that was sent is answered.
    pub(super) async fn answer(
        receiver: oneshot::Receiver<Result<Verdict, Failure>>,
        health: Arc<Health>,
    ) -> Result<Verdict, BackendError> {
        let answer = receiver.await;
        let answer = answer.unwrap_or_else(|_| Err(lost(&health)));
        Ok(answer?)
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
    target: Target,
    health: Arc<Health>,
    inbox: mpsc::Receiver<Job>,
}

impl Supervisor {
    async fn run(mut self, stream: TcpStream) {
        let backoff = Backoff::exponential(FIRST_DELAY, LONGEST_DELAY);
        let mut delays = backoff.schedule();
        let mut stream = Some(stream);
        loop {
            if let Some(stream) = stream.take() {
                self.health.rise();
                let Some(end) = self.serve(stream).await else {
                    return;
                };
                if end.had_answers {
                    delays = backoff.schedule();
                }
            }
            let delay = delays.next().unwrap_or(LONGEST_DELAY);
            let connecting = async {
                sleep(delay).await;
                self.target.dial().await
            };
            tokio::select! {
                made = connecting => match made {
                    Ok(made) => stream = Some(made),
                    Err(error) => self.health.fall(error.to_string()),
                },
                () = refuse(&mut self.inbox, &self.health) => return,
            }
        }
    }

    async fn serve(&mut self, stream: TcpStream) -> Option<End> {
        let (read, write) = stream.into_split();
        let mut pipe = Pipe::new(self.target.patience.answer, clock::now);
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
