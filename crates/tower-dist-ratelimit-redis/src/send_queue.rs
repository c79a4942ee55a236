mod queue;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use tower_dist_ratelimit::backend::toolkit::Health;

use self::queue::{LONGEST, Queue};
use super::{
    batch::{Batch, ClosedBatch, PendingReply},
    call::ScriptCall,
    failure::Failure,
    queued_call::{Batching, QueuedCall},
};

/// Number of queues above which a queue that becomes idle is removed.
const IDLE_KINDS: usize = 64;

/// The kind of a request: the address of its script, and its slot. Requests of one kind can share a call.
pub(super) type Kind = (usize, u16);

/// The unsent requests to a server. All clones of a [`Link`](super::link::Link) share the queue.
///
/// A caller adds its request to a batch itself, and wakes the link's task only if that task has a call to send.
#[derive(Debug)]
pub(super) struct SendQueue {
    health: Arc<Health>,
    state: Mutex<Queues>,
    /// Wakes the task that sends.
    ready: Notify,
}

#[derive(Debug, Default)]
struct Queues {
    /// Whether there is a connection.
    is_open: bool,
    /// Whether all handles were dropped.
    is_closed: bool,
    queues: BTreeMap<Kind, Queue>,
    /// Kinds that may have a call to send. The task that sends was woken for them.
    due: BTreeSet<Kind>,
    /// Calls to send that carry one request each.
    alone: Vec<DueCall>,
}

/// A call to send.
#[derive(Debug)]
pub(super) struct DueCall {
    pub(super) batch: ClosedBatch,
    pub(super) asking: bool,
    /// The kind of the [`Queue`] that the call came from. `None` for a call in `Queues::alone`.
    pub(super) kind: Option<Kind>,
}

impl SendQueue {
    pub(super) fn new(health: Arc<Health>) -> Self {
        Self {
            health,
            state: Mutex::default(),
            ready: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Queues> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request, or fails. `queued.batching` selects whether the request can share a call with others.
    pub(super) fn enqueue(&self, queued: QueuedCall) -> Result<PendingReply, Failure> {
        let mut state = self.lock();
        if !state.is_open {
            drop(state);
            return Err(Failure::NotConnected(self.health.reason().into()));
        }
        let (pending, is_due) = match queued.batching {
            Batching::Together => state.join(queued.call, queued.slot, &self.health)?,
            alone => state.enqueue_alone(queued.call, alone == Batching::Asking, &self.health)?,
        };
        drop(state);
        if is_due {
            self.ready.notify_one();
        }
        Ok(pending)
    }

    /// Waits until there may be a call to send, or until all handles were dropped.
    pub(super) async fn ready(&self) {
        self.ready.notified().await;
    }

    /// Takes out the calls of `Queues::alone`, and the calls of the `due` kinds that can be sent now. Returns whether
    /// all handles were dropped.
    pub(super) fn take(&self, due_calls: &mut Vec<DueCall>) -> bool {
        let mut state = self.lock();
        due_calls.append(&mut state.alone);
        while let Some(kind) = state.due.pop_first() {
            state.take(kind, due_calls);
        }
        state.is_closed
    }

    /// Records that a call of this kind has ended, and takes out the calls of the kind that can be sent now. If few
    /// requests wait and other calls of the kind are in flight, [`take`](Self::take) takes them out: their callers' next
    /// requests can share a call if these calls have ended, too.
    ///
    /// Calls that end one after the other can keep the task that sends from [`take`](Self::take). So this also takes out
    /// the calls of `Queues::alone`, and those of the next due kind in a cyclic order. It does this
    /// even if `kind` has no queue.
    pub(super) fn ended(&self, kind: Kind, due_calls: &mut Vec<DueCall>) {
        let mut state = self.lock();
        due_calls.append(&mut state.alone);
        let mut next = state.due.range(kind..).chain(&state.due).copied();
        if let Some(other) = next.find(|&next| next != kind) {
            state.due.remove(&other);
            state.take(other, due_calls);
        }
        let Some(queue) = state.queues.get_mut(&kind) else {
            return;
        };
        if queue.ended() {
            state.take(kind, due_calls);
        } else if !queue.is_empty() && state.due.insert(kind) {
            self.ready.notify_one();
        }
    }

    /// Takes out the calls of all kinds that can be sent now. The timer calls this, because requests could otherwise
    /// wait until an earlier call ends.
    pub(super) fn take_overdue(&self, due_calls: &mut Vec<DueCall>) {
        let mut state = self.lock();
        for kind in state.queues.keys().copied().collect::<Vec<_>>() {
            state.take(kind, due_calls);
        }
    }

    /// Records that there is a new connection, with no call in flight.
    pub(super) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Records that there is no connection. All unsent requests fail with the reason in [`Health`].
    pub(super) fn disconnect(&self) {
        let mut state = self.lock();
        state.is_open = false;
        state.due.clear();
        let (queues, _alone) = (mem::take(&mut state.queues), mem::take(&mut state.alone));
        drop(state);
        queues.into_values().for_each(Queue::disconnect);
    }

    /// Records that all handles were dropped.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.ready.notify_one();
    }

    /// Waits until all handles were dropped.
    pub(super) async fn closed(&self) {
        while !self.lock().is_closed {
            self.ready().await;
        }
    }
}

/// The future of a request, and whether to wake the connection's task.
type Enqueued = Result<(PendingReply, bool), Failure>;

impl Queues {
    /// Adds a request to the queue of its kind.
    fn join(&mut self, call: ScriptCall, slot: u16, health: &Arc<Health>) -> Enqueued {
        let kind = (Arc::as_ptr(&call.script).addr(), slot);
        let queue = self.queues.entry(kind).or_default();
        let pending = queue.join(call, health)?;
        let is_due = queue.should_check() && queue.can_send() && self.due.insert(kind);
        Ok((pending, is_due))
    }

    fn enqueue_alone(&mut self, call: ScriptCall, asking: bool, health: &Arc<Health>) -> Enqueued {
        if self.alone.len() >= LONGEST {
            return Err(Failure::Full);
        }
        let batch = Arc::new(Batch::new(Arc::default(), Arc::clone(health)));
        let (pending, _) = batch.join(call);
        self.alone.push(DueCall {
            batch: batch.close(),
            asking,
            kind: None,
        });
        Ok((pending, true))
    }

    /// Takes out the calls of this kind that can be sent now. Removes the queue if it is idle and there are many queues.
    fn take(&mut self, kind: Kind, due_calls: &mut Vec<DueCall>) {
        let Some(queue) = self.queues.get_mut(&kind) else {
            return;
        };
        while let Some(batch) = queue.take() {
            due_calls.push(DueCall {
                batch,
                asking: false,
                kind: Some(kind),
            });
        }
        if queue.is_idle() && self.queues.len() > IDLE_KINDS {
            self.queues.remove(&kind);
        }
    }
}

#[cfg(test)]
mod tests;
