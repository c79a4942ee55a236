use std::{future::ready, mem, sync::Arc, time::Duration};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use redis::{ErrorKind, RedisError};
use tokio::time::{Interval, MissedTickBehavior, interval};
use tower_dist_ratelimit::backend::BoxFuture;

use super::{
    batch::MOST_ROWS,
    connection::{Connection, takes_no_writes},
    round_trip::{CallOutcome, run},
    send_queue::{DueCall, Kind, SendQueue},
};

/// Interval of the timer that sends waiting requests while calls are in flight. Without the timer, a request to a
/// distant server could take two round trips, because it would first wait for the answer to an earlier call. A nearby
/// server usually answers sooner.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// Number of consecutive timeouts after which a connection is given up, if it can be replaced.
const SILENCES: u32 = 2;

/// Why a connection is given up.
#[derive(Debug)]
pub(super) struct Disconnect {
    pub(super) reason: String,
    /// Whether the server answered any call with an array of numbers, as the scripts do.
    pub(super) had_answers: bool,
}

/// Sends the requests of the send queue. While fewer than two calls of one [`Kind`] are in flight, a request of this
/// kind is sent immediately. Otherwise the requests of this kind can share calls, and `Queue::can_send` decides when a
/// call goes out. A request that goes alone is sent immediately.
pub(super) struct Combiner<'a> {
    send_queue: &'a SendQueue,
    connection: Connection,
    timeout: Duration,
    /// Whether a dead connection is replaced.
    reconnects: bool,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    /// The calls to send next. The vector is a field, so that its allocation is reused.
    due_calls: Vec<DueCall>,
    /// Ticks each [`LONGEST_WAIT`] while calls are in flight, to send waiting requests. The first tick is that long after
    /// the first call.
    timer: Interval,
    silences: u32,
    had_answers: bool,
}

/// A call that has ended. `kind` is `None` if the call carried a request that goes alone.
struct Done {
    kind: Option<Kind>,
    requests: usize,
    error: Option<CallOutcome>,
}

impl<'a> Combiner<'a> {
    pub(super) fn new(
        send_queue: &'a SendQueue,
        connection: Connection,
        timeout: Duration,
        reconnects: bool,
    ) -> Self {
        let mut timer = interval(LONGEST_WAIT);
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            send_queue,
            connection,
            timeout,
            reconnects,
            calls: FuturesUnordered::new(),
            due_calls: Vec::new(),
            timer,
            silences: 0,
            had_answers: false,
        }
    }

    /// Sends calls until the connection is given up. Returns `None` if all handles were dropped and the calls in flight
    /// have ended.
    pub(super) async fn run(&mut self) -> Option<Disconnect> {
        let (mut is_dead, mut is_closed) = (false, false);
        // Number of requests that were answered since this task last let their callers run.
        let mut answered = 0;
        loop {
            // All handles were dropped, and the last call has ended.
            if is_closed && self.calls.is_empty() {
                return None;
            }
            let end = tokio::select! {
                biased;
                // The driver moves the bytes. This completes calls.
                () = &mut self.connection.driver, if !is_dead => {
                    is_dead = true;
                    None
                }
                // Before the calls that have ended, because they can be ready each time.
                _ = self.timer.tick(), if !self.calls.is_empty() => {
                    self.send_queue.take_overdue(&mut self.due_calls);
                    None
                }
                Some(done) = self.calls.next() => {
                    // The callers run first, so that their next requests share a call. The server can execute that call
                    // while the callers of the next answer run. Few callers do not need a turn of their own.
                    answered += done.requests;
                    if answered >= MOST_ROWS {
                        answered = 0;
                        tokio::task::yield_now().await;
                    }
                    self.done(done)
                }
                // The last bytes of a connection can hold answers, so calls that have ended are handled first.
                () = ready(()), if is_dead => Some("the connection was closed".to_owned()),
                () = self.send_queue.ready(), if !is_closed => {
                    is_closed = self.send_queue.take(&mut self.due_calls);
                    None
                }
            };
            if let Some(reason) = end {
                // The caller drops this combiner. That drops the calls in flight, which fails their requests.
                return Some(Disconnect {
                    reason,
                    had_answers: self.had_answers,
                });
            }
            self.send();
        }
    }

    fn send(&mut self) {
        if self.calls.is_empty() {
            self.timer.reset();
        }
        for due_call in self.due_calls.drain(..) {
            let kind = due_call.kind;
            let requests = due_call.batch.rows.0.iter().map(|row| row.times).sum();
            let (commands, timeout) = (Arc::clone(&self.connection.commands), self.timeout);
            let mut call: BoxFuture<'static, Done> = Box::pin(async move {
                let error = run(due_call, &*commands, timeout).await;
                Done {
                    kind,
                    requests,
                    error,
                }
            });
            // The first poll sends the command. `calls` would first poll the calls that have ended.
            if let Some(done) = (&mut call).now_or_never() {
                call = Box::pin(ready(done));
            }
            self.calls.push(call);
        }
    }

    /// Handles the end of a call. If the connection is then given up, returns the reason. Otherwise moves the calls of
    /// the same kind that can be sent now from the send queue to `due_calls`. See [`SendQueue::ended`].
    fn done(&mut self, done: Done) -> Option<String> {
        let silences = mem::take(&mut self.silences) + 1;
        let end = match &done.error {
            None | Some(CallOutcome::Numbers(_)) => {
                self.had_answers = true;
                None
            }
            Some(CallOutcome::TimedOut) if silences < SILENCES => {
                self.silences = silences;
                None
            }
            Some(CallOutcome::TimedOut) => Some(format!(
                "{SILENCES} consecutive calls had no answer within {:?}",
                self.timeout
            )),
            Some(CallOutcome::Error(error)) => is_dead(error).then(|| error.to_string()),
        };
        if end.is_some() && self.reconnects {
            return end;
        }
        // The default is no script's kind.
        self.send_queue
            .ended(done.kind.unwrap_or_default(), &mut self.due_calls);
        None
    }
}

/// Returns whether a new connection, perhaps to another server, may avoid this error.
fn is_dead(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || error.kind() == ErrorKind::AuthenticationFailed
        || takes_no_writes(error)
}
