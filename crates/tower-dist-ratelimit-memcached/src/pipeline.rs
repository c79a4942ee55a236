use std::{any::Any, collections::VecDeque, future::pending, io, sync::Weak, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{mpsc, oneshot},
    task::yield_now,
    time::{Instant, sleep_until},
};

use tower_dist_ratelimit::backend::BackendError;

use super::{
    reply::{Code, Meta, Parser, Reply, violation},
    request::Command,
};

/// Number of commands in flight at or above which the task takes no commands from the queue. More commands in flight
/// would usually not keep the server busier, and a command that still waits can be withdrawn.
const MOST_SENT: usize = 4096;

/// Maximum number of commands that the task takes from the queue at once.
const MANY: usize = 256;

/// Number of unwritten bytes at or above which the task takes no commands from the queue.
const FULL: usize = 16 << 10;

/// The owner of a command. If the owner is dropped, its commands that wait in the queue are not sent.
pub(super) type Caller = Weak<dyn Any + Send + Sync>;

/// A command for the server.
pub(super) struct QueuedCommand {
    pub(super) command: Command,
    pub(super) answer: AnswerSender,
    pub(super) caller: Option<Caller>,
}

type AnswerSender = oneshot::Sender<Result<Meta, BackendError>>;

/// A command in flight. A server answers in the order of the commands.
struct SentCommand {
    opaque: u64,
    at: Instant,
    answer: AnswerSender,
}

/// Why a connection ended.
#[derive(Debug)]
pub(super) struct Disconnect {
    pub(super) reason: String,
    /// Whether any command got an answer that did not end the connection.
    pub(super) had_answers: bool,
}

/// One connection, on which many commands can be in flight at the same time.
// This crate has its own client. No existing client was found that keeps commands of many operations in flight on one
// connection, speaks the meta protocol, and has a permissive license.
pub(super) struct Pipeline {
    out: BytesMut,
    sent: VecDeque<SentCommand>,
    opaque: u64,
    /// Maximum time until the server answers a command.
    timeout: Duration,
    had_answers: bool,
}

impl Pipeline {
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            out: BytesMut::with_capacity(2 * FULL),
            sent: VecDeque::new(),
            opaque: 0,
            timeout,
            had_answers: false,
        }
    }

    /// Serves commands until the connection fails. Returns `None` if instead all senders of `inbox` are dropped and all
    /// sent commands are answered.
    pub(super) async fn run<R, W>(
        &mut self,
        mut read: R,
        mut write: W,
        inbox: &mut mpsc::Receiver<QueuedCommand>,
    ) -> Option<Disconnect>
    where
        R: AsyncRead + Unpin,
        W: AsyncWrite + Unpin,
    {
        let (mut parser, mut input) = (Parser::default(), BytesMut::with_capacity(2 * FULL));
        let mut arrived = Vec::with_capacity(MANY);
        let (mut open, mut gathered) = (true, false);
        let mut timer = std::pin::pin!(sleep_until(Instant::now()));
        let mut due = None;
        loop {
            if !open && self.sent.is_empty() {
                return None;
            }
            // While the timer is set, it moves only to an earlier time. It mostly fires for a command that was answered
            // long ago, and is then set for the oldest command in flight, if any.
            if let Some(next) = self.next_due()
                && due.is_none_or(|due| next < due)
            {
                due = Some(next);
                timer.as_mut().reset(next);
            }
            let event = tokio::select! {
                biased;
                read = read.read_buf(&mut input) => PipelineEvent::Read(read),
                n = inbox.recv_many(&mut arrived, MANY), if open && self.has_room() => {
                    open = n > 0;
                    PipelineEvent::Arrived
                }
                wrote = write.write_buf(&mut self.out), if !self.out.is_empty() => PipelineEvent::Wrote(wrote),
                () = async { if due.is_some() { timer.as_mut().await } else { pending().await } } => {
                    due = None;
                    PipelineEvent::Due
                }
            };
            let end = match event {
                PipelineEvent::Read(Ok(0)) => Some("the connection was closed".to_owned()),
                PipelineEvent::Read(Err(error)) | PipelineEvent::Wrote(Err(error)) => {
                    Some(error.to_string())
                }
                PipelineEvent::Read(Ok(_)) => self.replies(&mut parser, &mut input).err(),
                PipelineEvent::Wrote(Ok(_)) => {
                    gathered = false;
                    None
                }
                PipelineEvent::Due => self.timed_out(),
                PipelineEvent::Arrived => {
                    let now = Instant::now();
                    for queued in arrived.drain(..) {
                        self.send(queued, now);
                    }
                    // The first request can wake this task before the tasks of other requests run. Yield to them once,
                    // so that their commands can go out in the same write.
                    if !std::mem::replace(&mut gathered, true) {
                        yield_now().await;
                    }
                    None
                }
            };
            if let Some(reason) = end {
                return Some(Disconnect {
                    reason,
                    had_answers: self.had_answers,
                });
            }
        }
    }

    fn has_room(&self) -> bool {
        self.sent.len() < MOST_SENT && self.out.len() < FULL
    }

    /// Writes a command to the buffer. If the caller of the command has left, the command is not written, so it charges
    /// nothing.
    fn send(&mut self, queued: QueuedCommand, now: Instant) {
        let has_left = |caller: Caller| caller.strong_count() == 0;
        if queued.answer.is_closed() || queued.caller.is_some_and(has_left) {
            return;
        }
        self.opaque = self.opaque.wrapping_add(1) & 0xFFFF_FFFF;
        self.sent.push_back(SentCommand {
            opaque: self.opaque,
            at: now,
            answer: queued.answer,
        });
        queued.command.write(&mut self.out, self.opaque);
    }

    /// Delivers the answers that have arrived. If this returns an error, the connection ends.
    fn replies(&mut self, parser: &mut Parser, input: &mut BytesMut) -> Result<(), String> {
        while let Some(reply) = parser.next(input)? {
            let Some(sent) = self.sent.pop_front() else {
                return Err(violation("an answer without a command"));
            };
            let answer = match reply {
                Reply::Meta(meta) if meta.opaque == Some(sent.opaque) => Ok(meta),
                // The next two errors normally concern only this command, so the connection is kept.
                Reply::Error(error) if error.starts_with(NO_NUMBER) => {
                    Ok(Meta::new(Code::NoNumber))
                }
                Reply::Error(error) if error.starts_with("SERVER_ERROR ") => {
                    Err(BackendError::new(error))
                }
                Reply::Error(error) => {
                    let _ = sent.answer.send(Err(BackendError::new(error.clone())));
                    return Err(error);
                }
                _ => return Err(violation("an answer to another command")),
            };
            self.had_answers = true;
            let _ = sent.answer.send(answer);
        }
        Ok(())
    }

    /// Returns the time at which the oldest command times out. `None` if no command is in flight, or if the time
    /// exceeds the clock's range.
    fn next_due(&self) -> Option<Instant> {
        self.sent.front()?.at.checked_add(self.timeout)
    }

    fn timed_out(&self) -> Option<String> {
        let is_timeout = self.next_due().is_some_and(|due| due <= Instant::now());
        is_timeout.then(|| format!("no answer within {:?}", self.timeout))
    }
}

/// The server's error about a value that is no number.
const NO_NUMBER: &str = "CLIENT_ERROR cannot increment or decrement non-numeric value";

enum PipelineEvent {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Arrived,
    Due,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_without_a_command_ends_the_connection() {
        let mut pipeline = Pipeline::new(Duration::from_secs(1));
        let mut input = BytesMut::from("HD O1\r\n");
        let answered = pipeline.replies(&mut Parser::default(), &mut input);
        assert_eq!(
            answered.unwrap_err(),
            "the server does not speak the protocol: an answer without a command"
        );
    }
}
