mod sent;

use std::{collections::VecDeque, future::pending, io, time::Duration};

use bytes::BytesMut;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::mpsc,
    task::yield_now,
    time::{Instant, sleep_until},
};

use self::sent::Sent;
pub(super) use self::sent::Then;
use super::{
    clock::{Clock, Time},
    failure::{Failure, is_no_number},
    job::Job,
    reply::{Meta, Nonsense, Parser, Reply},
    request::Command,
};

/// How many commands may be on their way. More than a server has any use for at once; beyond it requests wait where they
/// can still be given up.
const MOST_SENT: usize = 4096;

/// How many requests are taken up at once.
const MANY: usize = 256;

/// So many bytes go out before more is taken up.
const FULL: usize = 16 << 10;

/// Why a connection is given up.
#[derive(Debug)]
pub(super) struct End {
    pub(super) reason: String,
    /// Whether it was of use.
    pub(super) had_answers: bool,
}

/// One connection, over which commands go without waiting for the answers to others.
// The smallest client that does this, because none of those there are does. async-memcached and mcmc-rs lend their
// connection to one operation at a time, memcache's client for tokio takes one of a pool for each (and is an experiment),
// vmemcached does not speak the meta protocol, and mtop-client is under the GPL.
pub(super) struct Pipe {
    out: BytesMut,
    sent: VecDeque<Sent>,
    opaque: u64,
    /// Maximum time for an answer of the server.
    timeout: Duration,
    /// When the present event came: clocks are read once for all that it brings.
    pub(super) now: Instant,
    pub(super) time: Time,
    clock: Clock,
    had_answers: bool,
}

impl Pipe {
    pub(super) fn new(timeout: Duration, clock: Clock) -> Self {
        Self {
            out: BytesMut::with_capacity(2 * FULL),
            sent: VecDeque::new(),
            opaque: 0,
            timeout,
            now: Instant::now(),
            time: clock(),
            clock,
            had_answers: false,
        }
    }

    /// Serves until the connection is of no use any more, or (none) nobody is left to serve. Whoever waits then is told
    /// by being dropped.
    pub(super) async fn run<R, W>(
        &mut self,
        mut read: R,
        mut write: W,
        inbox: &mut mpsc::Receiver<Job>,
    ) -> Option<End>
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
            // Only when it is to ring sooner: mostly it rings for a command that was answered long ago.
            if let Some(next) = self.next_due()
                && due.is_none_or(|due| next < due)
            {
                due = Some(next);
                timer.as_mut().reset(next);
            }
            let event = tokio::select! {
                biased;
                read = read.read_buf(&mut input) => Event::Read(read),
                n = inbox.recv_many(&mut arrived, MANY), if open && self.has_room() => {
                    open = n > 0;
                    Event::Arrived
                }
                wrote = write.write_buf(&mut self.out), if !self.out.is_empty() => Event::Wrote(wrote),
                () = async { if due.is_some() { timer.as_mut().await } else { pending().await } } => {
                    due = None;
                    Event::Due
                }
            };
            self.now = Instant::now();
            self.time = (self.clock)();
            let end = match event {
                Event::Read(Ok(0)) => Some("the connection was closed".to_owned()),
                Event::Read(Err(error)) | Event::Wrote(Err(error)) => Some(error.to_string()),
                Event::Read(Ok(_)) => self.replies(&mut parser, &mut input).err(),
                Event::Wrote(Ok(_)) => {
                    gathered = false;
                    None
                }
                Event::Due => self.due(),
                Event::Arrived => {
                    for job in arrived.drain(..) {
                        self.begin(job);
                    }
                    // Whoever has brought the first has woken this task, which then runs before all others that are about
                    // to ask. They go out together if it lets them go first, once.
                    if !std::mem::replace(&mut gathered, true) {
                        yield_now().await;
                    }
                    None
                }
            };
            if let Some(reason) = end {
                return Some(End {
                    reason,
                    had_answers: self.had_answers,
                });
            }
        }
    }

    /// Whether to take up more before what there is has gone.
    fn has_room(&self) -> bool {
        self.sent.len() < MOST_SENT && self.out.len() < FULL
    }

    fn begin(&mut self, job: Job) {
        // Who has gone is not charged.
        if job.is_left() {
            return;
        }
        match job {
            Job::Count(job) => self.count(job),
            Job::Ask { command, answer } => self.send(&command, Then::Told(answer)),
        }
    }

    /// Sends a command whose answer is for this.
    pub(super) fn send(&mut self, command: &Command, then: Then) {
        self.opaque = self.opaque.wrapping_add(1) & 0xFFFF_FFFF;
        self.sent.push_back(Sent {
            opaque: self.opaque,
            at: self.now,
            then,
        });
        command.write(&mut self.out, self.opaque);
    }

    fn replies(&mut self, parser: &mut Parser, input: &mut BytesMut) -> Result<(), String> {
        while let Some(reply) = parser.next(input).map_err(|wrong| wrong.to_string())? {
            self.reply(reply).map_err(|wrong| wrong.to_string())?;
        }
        Ok(())
    }

    fn reply(&mut self, reply: Reply) -> Result<(), Nonsense> {
        let Some(sent) = self.sent.pop_front() else {
            return Err(Nonsense::new("an answer to nothing"));
        };
        let result = match reply {
            Reply::Meta(meta) if meta.opaque == Some(sent.opaque) => Ok(meta),
            Reply::Meta(meta) => {
                let (got, expected) = (meta.opaque, sent.opaque);
                return Err(Nonsense::new(format!(
                    "an answer to {got:?}, not to {expected}"
                )));
            }
            Reply::Version(_) => return Err(Nonsense::new("a version that nobody asked for")),
            Reply::Error(error) => Err(error),
        };
        if let Err(error) = &result
            && !is_harmless(error)
        {
            let error = error.clone();
            self.then(sent.then, Err(Failure::new(&error)));
            return Err(Nonsense::new(error));
        }
        self.had_answers = true;
        self.then(sent.then, result.map_err(Failure::new));
        Ok(())
    }

    fn then(&mut self, then: Then, answer: Result<Meta, Failure>) {
        match then {
            Then::Told(told) => {
                let _ = told.send(answer);
            }
            Then::Look(job) => self.looked(job, answer),
            Then::Charged(job) => self.charged(job, answer),
            Then::TakenBack(job) => self.taken_back(job, answer),
            Then::Reread(job) => self.reread(job, answer),
            Then::Inspected(job) => self.inspected(job, answer),
            Then::Healed(job) => self.healed(job, answer),
            Then::Settled(job) => match answer {
                Ok(_) => job.done(),
                Err(failure) => job.answer(Err(failure)),
            },
        }
    }

    /// When the server has been silent for too long. `None` if that is later than a clock can tell.
    fn next_due(&self) -> Option<Instant> {
        self.sent.front()?.at.checked_add(self.timeout)
    }

    fn due(&self) -> Option<String> {
        let is_late = self.next_due().is_some_and(|due| due <= self.now);
        is_late.then(|| format!("no answer within {:?}", self.timeout))
    }
}

enum Event {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Arrived,
    Due,
}

/// Whether an error is about one command, and those that follow are understood. A server without memory says so.
fn is_harmless(error: &str) -> bool {
    is_no_number(error) || error.starts_with("SERVER_ERROR ")
}

#[cfg(test)]
mod fleet;
#[cfg(test)]
mod store;
#[cfg(test)]
mod tests;
