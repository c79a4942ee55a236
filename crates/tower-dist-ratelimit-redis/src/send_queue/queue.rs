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
    batch::{Batch, ClosedBatch, MOST_ROWS, PendingReply},
    call::ScriptCall,
    failure::Failure,
};

/// If at least this many requests of a [`Queue`] wait, the next call does not wait for [`PATIENCE`], even if no batch
/// is full.
const MANY: usize = 64;

/// Number of calls of one [`Queue`] that can be in flight before further requests may have to wait. It is two, so that
/// the second of two concurrent requests does not wait for the first. With 64 and with 512 concurrent requests for one
/// key, a value of one gives the same median latency.
pub(super) const FREE_CALLS: usize = 2;

/// Minimum time from the last call to the next one while at least [`FREE_CALLS`] calls are in flight.
///
/// A full batch does not wait for this time, and neither do [`MANY`] waiting requests. A nearby server usually answers
/// within this time. Its answer then usually lets the next call go out.
const PATIENCE: Duration = Duration::from_millis(1);

/// Maximum number of calls of one [`Queue`] in flight: with one call per [`PATIENCE`], enough for a server whose answer
/// takes a quarter of a second.
pub(super) const CALLS: usize = 256;

/// Maximum number of waiting requests of one [`Queue`]. The same maximum holds for the unsent requests that go
/// alone, of all kinds together.
///
/// A service normally has fewer concurrent requests. Further requests fail immediately, so that the queue in front of a
/// server that does not answer is bounded.
pub(super) const LONGEST: usize = 4096;

/// Maximum number of full batches. If no caller leaves, [`LONGEST`] requests fill at most half of them. The other half
/// is room for requests whose caller has left.
const MOST_BATCHES: usize = 2 * LONGEST / MOST_ROWS;

/// The unsent requests of one script and Cluster slot, without the requests that go alone.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Batches that are full.
    full: VecDeque<Arc<Batch>>,
    /// The batch that new requests join.
    open: Option<Arc<Batch>>,
    /// Number of requests in these batches, without those whose caller has left.
    waiting: Arc<AtomicUsize>,
    /// Number of calls in flight.
    calls: usize,
    /// When the last call was sent.
    sent: Option<Instant>,
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

    /// Returns whether there is a batch, and another call is allowed now.
    pub(super) fn can_send(&self) -> bool {
        !self.is_empty() && (self.calls < FREE_CALLS || (self.calls < CALLS && self.can_follow()))
    }

    /// Returns whether another call can go out while at least [`FREE_CALLS`] and fewer than [`CALLS`] calls are in
    /// flight.
    fn can_follow(&self) -> bool {
        self.has_many() || self.sent.is_none_or(|sent| sent.elapsed() >= PATIENCE)
    }

    fn has_many(&self) -> bool {
        !self.full.is_empty() || self.waiting.load(Relaxed) >= MANY
    }

    /// Returns whether to check [`can_send`](Self::can_send) after a request was added. That check can read the clock.
    /// So it is made only if the number of waiting requests is a power of two, or if `has_many` is true.
    pub(super) fn should_check(&self) -> bool {
        self.waiting.load(Relaxed).is_power_of_two() || self.has_many()
    }

    /// Adds a request.
    pub(super) fn join(
        &mut self,
        call: ScriptCall,
        health: &Arc<Health>,
    ) -> Result<PendingReply, Failure> {
        if self.waiting.load(Relaxed) >= LONGEST || self.full.len() >= MOST_BATCHES {
            return Err(Failure::Full);
        }
        let batch = self.open.get_or_insert_with(|| {
            Arc::new(Batch::new(Arc::clone(&self.waiting), Arc::clone(health)))
        });
        let (pending, is_full) = batch.join(call);
        if is_full {
            self.full.extend(self.open.take());
            // Removes the oldest batches if all their callers have left.
            while self.full.front().is_some_and(|batch| batch.is_deserted()) {
                self.full.pop_front();
            }
        }
        Ok(pending)
    }

    /// Takes out the next call, if one can be sent now.
    pub(super) fn take(&mut self) -> Option<ClosedBatch> {
        while self.can_send() {
            let batch = self.full.pop_front().or_else(|| self.open.take())?.close();
            // A batch that all callers have left is not sent.
            if !batch.rows.0.is_empty() {
                self.calls += 1;
                self.sent = Some(Instant::now());
                return Some(batch);
            }
        }
        None
    }

    /// Records that a call has ended. Returns whether many requests wait or no other call is in flight.
    pub(super) fn ended(&mut self) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.calls == 0 || self.has_many()
    }

    pub(super) fn is_idle(&self) -> bool {
        self.calls == 0 && self.is_empty()
    }

    /// Fails all unsent requests, because the connection is lost: dropping a closed batch fails its requests.
    pub(super) fn disconnect(self) {
        for batch in self.full.into_iter().chain(self.open) {
            drop(batch.close());
        }
    }
}
