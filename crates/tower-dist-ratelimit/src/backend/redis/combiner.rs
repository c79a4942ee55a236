use std::{
    collections::{HashMap, VecDeque},
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{ErrorKind, RedisError, Value};
use smallvec::SmallVec;
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep, sleep},
};

use super::{
    batch::{Answer, Batch, Outcome},
    call::Call,
    failure::Failure,
    link::{How, Job, Work},
    reply::Words,
    wire::{Wire, is_read_only},
};
use crate::backend::BoxFuture;

/// The most requests that are decided by one call of a script: that is where the cost of a call is spread thin enough,
/// and the server is not kept from others for longer than 0.1 ms.
pub(super) const MOST: usize = 32;

/// While a call is on its way, requests wait for each other: until there are as many as fit into one, or it is answered;
/// but if it was sent longer ago than this, one that arrives takes those that wait along. Servers nearby answer sooner,
/// so that calls are full when there is much to do.
const PATIENCE: Duration = Duration::from_millis(1);

/// How long they wait at most, also if none arrives: with a server far away, nobody waits for two ways there and back. Long
/// enough for one that is nearby and busy to answer first.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// How many calls may be on their way.
const CALLS: usize = 32;

/// How many requests wait to go out, of one kind.
const LONGEST_QUEUE: usize = 4096;

/// So many calls in a row that are not answered in time mean that the connection is dead, or the server.
const SILENCES: u32 = 2;

/// Requests of which some can go out in one call: to the same script, of the same slot.
type Kind = (usize, u16);

#[derive(Default)]
struct Queue {
    waiting: VecDeque<(Call, Answer)>,
    calls: usize,
    /// The last of them.
    sent: Option<Instant>,
}

impl Queue {
    /// Whether another call may go while one is on its way.
    fn may_follow(&self) -> bool {
        self.waiting.len() >= MOST || self.sent.is_none_or(|sent| sent.elapsed() >= PATIENCE)
    }
}

/// Why a connection is given up.
#[derive(Debug)]
pub(super) struct End {
    pub(super) reason: String,
    /// Whether it was of use.
    pub(super) had_answers: bool,
}

/// Puts requests together while calls are on their way. A call's end is what sends the next; and a timer, if that takes
/// longer than a moment. With nothing on its way none waits.
pub(super) struct Combiner {
    wire: Wire,
    patience: Duration,
    /// Whether a connection that seems dead is to be replaced.
    reconnects: bool,
    queues: HashMap<Kind, Queue>,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    /// When those that wait have waited long enough; while it is set.
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
    silences: u32,
    had_answers: bool,
    /// The connection is closed.
    dead: bool,
}

/// The end of a call. The kind is none for those that go alone.
struct Done {
    kind: Option<Kind>,
    error: Option<Outcome>,
}

enum Event {
    Dead,
    Done(Done),
    /// Some may have waited long enough.
    Due,
    Arrived(usize),
}

impl Combiner {
    pub(super) fn new(wire: Wire, patience: Duration, reconnects: bool) -> Self {
        Self {
            wire,
            patience,
            reconnects,
            queues: HashMap::new(),
            calls: FuturesUnordered::new(),
            timer: Box::pin(sleep(LONGEST_WAIT)),
            timer_is_set: false,
            silences: 0,
            had_answers: false,
            dead: false,
        }
    }

    /// Serves until the connection is of no use any more, or (none) nobody is left to serve.
    pub(super) async fn run(&mut self, inbox: &mut mpsc::Receiver<Job>) -> Option<End> {
        let mut arrived = Vec::with_capacity(MOST);
        loop {
            let end = match self.next(inbox, &mut arrived).await {
                Event::Dead => Some("the connection was closed".to_owned()),
                Event::Done(done) => self.done(done),
                Event::Due => {
                    self.flush_all();
                    None
                }
                Event::Arrived(0) => {
                    self.finish().await;
                    return None;
                }
                Event::Arrived(_) => None,
            };
            if let Some(reason) = end {
                // All that wait, and are on their way, are dropped with this, which tells them.
                return Some(End {
                    reason,
                    had_answers: self.had_answers,
                });
            }
            // All that have come at one time go out together.
            let mut kinds: SmallVec<[Kind; 4]> = SmallVec::new();
            for job in arrived.drain(..) {
                if let Some(kind) = self.queue(job)
                    && kinds.last() != Some(&kind)
                {
                    kinds.push(kind);
                }
            }
            for kind in kinds {
                self.flush(kind);
            }
        }
    }

    async fn next(&mut self, inbox: &mut mpsc::Receiver<Job>, arrived: &mut Vec<Job>) -> Event {
        tokio::select! {
            biased;
            event = poll_fn(|cx| self.poll(cx)) => event,
            n = inbox.recv_many(arrived, 4 * MOST) => Event::Arrived(n),
        }
    }

    /// Moves the bytes, which ends calls, which lets others go.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Event> {
        // An answer can come with the end of the connection. So this goes on after that, and what moves the bytes must not.
        self.dead = self.dead || self.wire.driver.as_mut().poll(cx).is_ready();
        match self.calls.poll_next_unpin(cx) {
            Poll::Ready(Some(done)) => Poll::Ready(Event::Done(done)),
            _ if self.dead => Poll::Ready(Event::Dead),
            _ if self.timer_is_set && self.timer.as_mut().poll(cx).is_ready() => {
                self.timer_is_set = false;
                Poll::Ready(Event::Due)
            }
            _ => Poll::Pending,
        }
    }

    /// Answers those that are left when no more can come.
    async fn finish(&mut self) {
        while !self.calls.is_empty() {
            match poll_fn(|cx| self.poll(cx)).await {
                Event::Done(done) => {
                    if self.done(done).is_some() {
                        return;
                    }
                }
                Event::Due => self.flush_all(),
                Event::Dead | Event::Arrived(_) => return,
            }
        }
    }

    /// Takes a request up. Returns its kind, if it waits for others to go with.
    fn queue(&mut self, job: Job) -> Option<Kind> {
        match job.work {
            Work::Command { command, how } => {
                let sent = self.wire.commands.send(command, how == How::Asking);
                let patience = self.patience;
                self.calls.push(Box::pin(async move {
                    let sent = async { sent.await.map(|_| Value::Array(Vec::new())) };
                    let outcome = Outcome::of(tokio::time::timeout(patience, sent).await);
                    let answer = match &outcome {
                        Outcome::Numbers(_) => Ok(Words::new()),
                        other => Err(other.failure(patience)),
                    };
                    let _ = job.answer.send(answer);
                    Done {
                        kind: None,
                        error: Some(outcome),
                    }
                }));
                None
            }
            Work::Decide {
                call,
                how: how @ (How::Alone | How::Asking),
                ..
            } => {
                let mut batch = Batch::default();
                batch.push(call, job.answer);
                let asking = how == How::Asking;
                self.calls
                    .push(invoke(&self.wire, self.patience, None, batch, asking));
                None
            }
            Work::Decide {
                call,
                slot,
                how: How::Together,
            } => {
                let kind = (Arc::as_ptr(&call.script).addr(), slot);
                let queue = self.queues.entry(kind).or_default();
                // Who has gone keeps nobody's place.
                while queue.waiting.len() >= LONGEST_QUEUE && queue.waiting[0].1.is_closed() {
                    queue.waiting.pop_front();
                }
                if queue.waiting.len() >= LONGEST_QUEUE {
                    let full = Failure::new(format_args!("{LONGEST_QUEUE} requests wait already"));
                    let _ = job.answer.send(Err(full));
                } else {
                    queue.waiting.push_back((call, job.answer));
                }
                Some(kind)
            }
        }
    }

    /// Sends what may go.
    fn flush(&mut self, kind: Kind) {
        let Some(queue) = self.queues.get_mut(&kind) else {
            return;
        };
        while !queue.waiting.is_empty()
            && (queue.calls == 0 || (queue.calls < CALLS && queue.may_follow()))
        {
            let mut batch = Batch::default();
            while batch.len() < MOST
                && let Some((call, answer)) = queue.waiting.pop_front()
            {
                // Who has gone is not charged.
                if !answer.is_closed() {
                    batch.push(call, answer);
                }
            }
            if batch.len() == 0 {
                break;
            }
            queue.calls += 1;
            queue.sent = Some(Instant::now());
            self.calls
                .push(invoke(&self.wire, self.patience, Some(kind), batch, false));
        }
        if queue.waiting.is_empty() {
            if queue.calls == 0 {
                self.queues.remove(&kind);
            }
        } else if queue.calls < CALLS && !self.timer_is_set {
            self.timer.as_mut().reset(Instant::now() + LONGEST_WAIT);
            self.timer_is_set = true;
        }
    }

    fn flush_all(&mut self) {
        let waiting = self
            .queues
            .iter()
            .filter(|(_, queue)| !queue.waiting.is_empty());
        let kinds: SmallVec<[Kind; 4]> = waiting.map(|(&kind, _)| kind).collect();
        for kind in kinds {
            self.flush(kind);
        }
    }

    /// Notes how a call went, and sends what has waited for it. Returns why the connection is of no use, if so.
    fn done(&mut self, done: Done) -> Option<String> {
        let end = match &done.error {
            None | Some(Outcome::Numbers(_)) => {
                self.silences = 0;
                self.had_answers = true;
                None
            }
            Some(Outcome::Silence) => {
                self.silences += 1;
                (self.silences >= SILENCES).then(|| {
                    format!(
                        "{SILENCES} calls in a row had no answer within {:?}",
                        self.patience
                    )
                })
            }
            Some(Outcome::Error(error)) => {
                self.silences = 0;
                is_dead(error).then(|| error.to_string())
            }
        };
        if end.is_some() && self.reconnects {
            return end;
        }
        if let Some(kind) = done.kind {
            if let Some(queue) = self.queues.get_mut(&kind) {
                queue.calls -= 1;
            }
            self.flush(kind);
        }
        None
    }
}

/// Calls the script that a batch is for.
fn invoke(
    wire: &Wire,
    patience: Duration,
    kind: Option<Kind>,
    batch: Batch,
    asking: bool,
) -> BoxFuture<'static, Done> {
    let commands = Arc::clone(&wire.commands);
    Box::pin(async move {
        let error = batch.run(&*commands, asking, patience).await;
        Done { kind, error }
    })
}

/// Whether another connection, perhaps to another server, could do better.
fn is_dead(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || error.kind() == ErrorKind::AuthenticationFailed
        || is_read_only(error)
}
