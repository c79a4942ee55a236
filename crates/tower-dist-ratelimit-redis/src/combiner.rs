use std::{future::ready, pin::Pin, sync::Arc, time::Duration};

use futures_util::{StreamExt, stream::FuturesUnordered};
use redis::{ErrorKind, RedisError};
use tokio::time::{Instant, Sleep, sleep};
use tower_dist_ratelimit::backend::BoxFuture;

use super::{
    errand::{Outcome, run},
    outbox::{Kind, Outbox, Parcel},
    wire::{Wire, takes_no_writes},
};

/// How long requests wait for each other at most, also if none arrives: with a server far away, nobody waits for two ways
/// there and back. Long enough for one that is nearby and busy to answer first.
const LONGEST_WAIT: Duration = Duration::from_millis(5);

/// So many calls in a row that are not answered in time mean that the connection is dead, or the server.
const SILENCES: u32 = 2;

/// Why a connection is given up.
#[derive(Debug)]
pub(super) struct End {
    pub(super) reason: String,
    /// Whether it was of use.
    pub(super) had_answers: bool,
}

/// Sends what has come together in the outbox while calls are on their way. A call's end is what sends the next; and a
/// timer, if that takes longer than a moment. With nothing on its way none waits.
pub(super) struct Combiner<'a> {
    outbox: &'a Outbox,
    wire: Wire,
    timeout: Duration,
    /// Whether a connection that seems dead is to be replaced.
    reconnects: bool,
    calls: FuturesUnordered<BoxFuture<'static, Done>>,
    /// What is sent next. Here, so that it takes no allocation each time.
    parcels: Vec<Parcel>,
    /// While calls are on their way: when those that wait may have waited long enough.
    timer: Pin<Box<Sleep>>,
    timer_is_set: bool,
    silences: u32,
    had_answers: bool,
}

/// The end of a call. The kind is none for those that go alone.
struct Done {
    kind: Option<Kind>,
    error: Option<Outcome>,
}

impl<'a> Combiner<'a> {
    pub(super) fn new(outbox: &'a Outbox, wire: Wire, timeout: Duration, reconnects: bool) -> Self {
        Self {
            outbox,
            wire,
            timeout,
            reconnects,
            calls: FuturesUnordered::new(),
            parcels: Vec::new(),
            timer: Box::pin(sleep(LONGEST_WAIT)),
            timer_is_set: false,
            silences: 0,
            had_answers: false,
        }
    }

    /// Serves until the connection is of no use any more. Returns `None` when no handle is left.
    pub(super) async fn run(&mut self) -> Option<End> {
        let (mut is_dead, mut is_closed) = (false, false);
        loop {
            // Answers those that are left when no more can come.
            if is_closed && self.calls.is_empty() {
                return None;
            }
            let end = tokio::select! {
                biased;
                // Moves the bytes, which ends calls.
                () = &mut self.wire.driver, if !is_dead => {
                    is_dead = true;
                    None
                }
                Some(done) = self.calls.next() => self.done(done),
                // An answer can come with the end of the connection, so calls that have ended come first.
                () = ready(()), if is_dead => Some("the connection was closed".to_owned()),
                () = &mut self.timer, if self.timer_is_set => {
                    self.timer_is_set = false;
                    self.outbox.take_late(&mut self.parcels);
                    None
                }
                () = self.outbox.news(), if !is_closed => {
                    is_closed = self.outbox.take(&mut self.parcels);
                    None
                }
            };
            if let Some(reason) = end {
                // All that are on their way are dropped with this, which tells them.
                return Some(End {
                    reason,
                    had_answers: self.had_answers,
                });
            }
            self.send();
        }
    }

    fn send(&mut self) {
        for parcel in self.parcels.drain(..) {
            let kind = parcel.kind;
            let (commands, timeout) = (Arc::clone(&self.wire.commands), self.timeout);
            self.calls.push(Box::pin(async move {
                let error = run(parcel, &*commands, timeout).await;
                Done { kind, error }
            }));
        }
        if !self.timer_is_set && !self.calls.is_empty() {
            self.timer.as_mut().reset(Instant::now() + LONGEST_WAIT);
            self.timer_is_set = true;
        }
    }

    /// Notes how a call went, and takes out what has waited for it. Returns why the connection is of no use, if so.
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
                        self.timeout
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
            self.outbox.ended(kind, &mut self.parcels);
        }
        None
    }
}

/// Whether another connection, perhaps to another server, could do better.
fn is_dead(error: &RedisError) -> bool {
    error.is_unrecoverable_error()
        || error.is_io_error()
        || error.kind() == ErrorKind::AuthenticationFailed
        || takes_no_writes(error)
}
