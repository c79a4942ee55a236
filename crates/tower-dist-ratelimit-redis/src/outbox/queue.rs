use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use tokio::time::Instant;
use tower_dist_ratelimit::backend::toolkit::Health;

use crate::{
    batch::{Batch, MOST_ROWS, Pending, Sending},
    call::Call,
    failure::Failure,
};

/// With this number of unsent requests a call goes out, also if they are few rows of a hot key.
const MANY: usize = 64;

/// Number of calls of one kind that go out without a wait, so that the second of two concurrent requests does not wait for
/// the first. With 64 and 512 concurrent requests for one key, the median latency is the same as with one call.
pub(super) const FREE_CALLS: usize = 2;

/// While two calls are on their way, requests wait for each other: until there are as many as fit into one, or a call is
/// answered; but if the last call was sent longer ago than this, one that arrives takes those that wait along. Servers nearby answer sooner,
/// so that calls are full when there is much to do.
const PATIENCE: Duration = Duration::from_millis(1);

/// How many calls may be on their way.
const CALLS: usize = 32;

/// How many requests wait to go out, of one kind. More than any service has at once; beyond it they fail at once rather
/// than pile up in front of a server that does not answer.
pub(super) const LONGEST: usize = 4096;

/// How many calls wait to go out. Twice as many as the longest queue needs that nobody has left.
const MOST_BATCHES: usize = 2 * LONGEST / MOST_ROWS;

/// Requests of one kind that wait.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Of as many rows as may be.
    full: VecDeque<Arc<Batch>>,
    /// Which others join.
    open: Option<Arc<Batch>>,
    /// How many requests are in these.
    waiting: Arc<AtomicUsize>,
    /// How many calls are on their way.
    calls: usize,
    /// The last of them.
    sent: Option<Instant>,
    pub(super) is_due: bool,
}

impl Queue {
    pub(super) fn is_empty(&self) -> bool {
        self.open.is_none() && self.full.is_empty()
    }

    /// Number of unsent calls.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.full.len() + usize::from(self.open.is_some())
    }

    /// Whether there is a call to be made.
    pub(super) fn may_go(&self) -> bool {
        !self.is_empty() && (self.calls < FREE_CALLS || (self.calls < CALLS && self.may_follow()))
    }

    /// Whether another call may go while the free ones are on their way.
    fn may_follow(&self) -> bool {
        self.is_much() || self.sent.is_none_or(|sent| sent.elapsed() >= PATIENCE)
    }

    fn is_much(&self) -> bool {
        !self.full.is_empty() || self.waiting.load(Relaxed) >= MANY
    }

    /// Whether the last request can make a call go out. Of many concurrent requests only the first looks at the clock, and
    /// each request that doubles their number.
    pub(super) fn has_news(&self) -> bool {
        self.waiting.load(Relaxed).is_power_of_two() || self.is_much()
    }

    /// Adds a request.
    pub(super) fn join(&mut self, call: Call, health: &Arc<Health>) -> Result<Pending, Failure> {
        if self.waiting.load(Relaxed) >= LONGEST || self.full.len() >= MOST_BATCHES {
            return Err(Failure::Full);
        }
        let batch = self.open.get_or_insert_with(|| {
            Arc::new(Batch::new(Arc::clone(&self.waiting), Arc::clone(health)))
        });
        let (pending, is_full) = batch.join(call);
        if is_full {
            self.full.extend(self.open.take());
            // Requests that are gone take no place.
            while self.full.front().is_some_and(|batch| batch.is_deserted()) {
                self.full.pop_front();
            }
        }
        Ok(pending)
    }

    /// Takes out the next call to send now.
    pub(super) fn take(&mut self) -> Option<Sending> {
        while self.may_go() {
            let batch = self.full.pop_front().or_else(|| self.open.take())?.close();
            // A batch of requests that are all gone is not sent.
            if !batch.rows.0.is_empty() {
                self.calls += 1;
                self.sent = Some(Instant::now());
                return Some(batch);
            }
        }
        None
    }

    /// A call has ended.
    pub(super) fn ended(&mut self) {
        self.calls = self.calls.saturating_sub(1);
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls == 0 && self.is_empty()
    }

    /// Fails all unsent requests with the lost connection.
    pub(super) fn shut(self) {
        for batch in self.full.into_iter().chain(self.open) {
            drop(batch.close());
        }
    }
}
