use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    net::TcpStream,
    runtime::Handle,
    sync::{
        mpsc::{self, error::TrySendError},
        oneshot,
    },
};
use tower_dist_ratelimit::backend::{
    BackendError,
    toolkit::{Address, ConnectError, Health, Reconnect, Timeouts, connect_within},
};

use super::{
    failure,
    pipeline::{Caller, Disconnect, Pipeline, QueuedCommand},
    reply::Meta,
    request::Command,
    wire,
};

/// Maximum number of commands in the queue of the connection task. A service normally has fewer concurrent requests.
/// While the queue is full, the first command of an operation or of its retry fails immediately. Only other commands
/// can wait for room in the queue.
const INBOX: usize = 8192;

/// The address of a server, and the settings of its connection.
#[derive(Clone, Debug)]
pub(super) struct ServerSettings {
    pub(super) address: Address,
    pub(super) prefix: Arc<str>,
    pub(super) timeouts: Timeouts,
}

/// A handle of the task that keeps a server connected. When the last handle is dropped and all sent commands are
/// answered, the task ends.
#[derive(Clone, Debug)]
pub(super) struct Link(Arc<SharedLink>);

#[derive(Debug)]
struct SharedLink {
    inbox: mpsc::Sender<QueuedCommand>,
    health: Arc<Health>,
    runtime: Handle,
}

impl Link {
    /// Makes one attempt to connect. If the attempt succeeds, reconnects in the background after each loss of the
    /// connection.
    pub(super) async fn new(target: ServerSettings) -> Result<Self, ConnectError> {
        let (address, timeout) = (&target.address, target.timeouts.connect);
        let stream = connect_within(timeout, address, wire::dial(address, &target.prefix)).await?;
        Ok(Self::spawn(target, Health::up(), Some(stream)))
    }

    /// Connects in the background. Commands fail until the first connection.
    pub(super) fn connect_lazy(target: ServerSettings) -> Self {
        Self::spawn(target, Health::waiting(), None)
    }

    fn spawn(target: ServerSettings, health: Health, stream: Option<TcpStream>) -> Self {
        let (link, inbox) = Self::channel(health, INBOX);
        let timeouts = target.timeouts;
        let connect = Arc::new(move || {
            let target = target.clone();
            Box::pin(async move { wire::dial(&target.address, &target.prefix).await }) as _
        });
        let reconnect = Reconnect::new(connect, timeouts.connect);
        let health = Arc::clone(&link.0.health);
        tokio::spawn(supervise(timeouts.answer, reconnect, health, inbox, stream));
        link
    }

    /// Returns a link and the receiver of its commands.
    pub(super) fn channel(health: Health, size: usize) -> (Self, mpsc::Receiver<QueuedCommand>) {
        let (sender, inbox) = mpsc::channel(size);
        let shared = SharedLink {
            inbox: sender,
            health: Arc::new(health),
            runtime: Handle::current(),
        };
        (Self(Arc::new(shared)), inbox)
    }

    /// Returns the runtime of the connection task.
    pub(super) fn runtime(&self) -> &Handle {
        &self.0.runtime
    }

    /// Queues a command for the connection task. If the owner in `caller` or the returned future is dropped before the
    /// task takes the command, the command is not sent. Fails if there is no connection or if the queue is full.
    pub(super) fn send(
        &self,
        command: Command,
        caller: Option<Caller>,
    ) -> Result<PendingAnswer, BackendError> {
        self.check()?;
        let (queued, pending) = self.queued(command, caller);
        self.0.inbox.try_send(queued).map_err(|error| match error {
            TrySendError::Full(_) => BackendError::busy(format!("{INBOX} requests wait already")),
            TrySendError::Closed(_) => lost(&self.0.health),
        })?;
        Ok(pending)
    }

    /// Waits for room in the queue, sends a command, and waits for the answer. Only for later commands of operations
    /// whose first command was accepted. So the number of waiting commands is bounded.
    pub(super) async fn send_in_turn(&self, command: Command) -> Result<Meta, BackendError> {
        self.check()?;
        let (queued, pending) = self.queued(command, None);
        let sent = self.0.inbox.send(queued).await;
        sent.map_err(|_| lost(&self.0.health))?;
        pending.await
    }

    fn queued(&self, command: Command, caller: Option<Caller>) -> (QueuedCommand, PendingAnswer) {
        let (answer, receiver) = oneshot::channel();
        let queued = QueuedCommand {
            command,
            answer,
            caller,
        };
        let health = Arc::clone(&self.0.health);
        (queued, PendingAnswer { receiver, health })
    }

    /// Fails while the recorded state of the connection is down.
    pub(super) fn check(&self) -> Result<(), BackendError> {
        match self.0.health.is_up() {
            true => Ok(()),
            false => Err(lost(&self.0.health)),
        }
    }
}

/// A future of the answer to a command.
pub(super) struct PendingAnswer {
    receiver: oneshot::Receiver<Result<Meta, BackendError>>,
    health: Arc<Health>,
}

impl Future for PendingAnswer {
    type Output = Result<Meta, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = Pin::new(&mut self.receiver).poll(cx);
        answer.map(|answer| answer.unwrap_or_else(|_| Err(lost(&self.health))))
    }
}

/// Returns the error of a command without a connection, or of a command that the task dropped. The task records a lost
/// connection before it drops the commands in flight. So if the recorded state is up, usually either the task has ended
/// or the command's caller has left.
fn lost(health: &Health) -> BackendError {
    match health.is_up() {
        true => failure::ended(),
        false => failure::lost(health.reason()),
    }
}

/// The task of a link: serves one connection after the other, and ends after the last handle is dropped. `timeout` is
/// the maximum time until the server answers a command.
async fn supervise(
    timeout: Duration,
    mut reconnect: Reconnect<TcpStream>,
    health: Arc<Health>,
    mut inbox: mpsc::Receiver<QueuedCommand>,
    mut stream: Option<TcpStream>,
) {
    loop {
        if let Some(stream) = stream.take() {
            health.connected();
            let (read, write) = stream.into_split();
            let mut pipeline = Pipeline::new(timeout);
            let end = pipeline.run(read, write, &mut inbox).await;
            let Some(Disconnect {
                reason,
                had_answers,
            }) = end
            else {
                return;
            };
            // Dropping the pipeline fails the commands in flight, usually with this reason.
            health.disconnected(reason);
            drop(pipeline);
            if had_answers {
                reconnect.reset();
            }
        }
        tokio::select! {
            made = reconnect.run(&health) => stream = Some(made),
            () = reject(&mut inbox, &health) => return,
        }
    }
}

/// Fails the queued commands while there is no connection. Returns when the last handle is dropped.
async fn reject(inbox: &mut mpsc::Receiver<QueuedCommand>, health: &Health) {
    while let Some(queued) = inbox.recv().await {
        let _ = queued.answer.send(Err(failure::lost(health.reason())));
    }
}
