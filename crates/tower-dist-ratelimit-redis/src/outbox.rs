mod queue;

use std::{
    collections::BTreeMap,
    mem,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::Notify;

use tower_dist_ratelimit::backend::toolkit::Health;

use self::queue::{LONGEST, Queue};
use super::{
    batch::{Batch, Pending, Sending},
    call::Call,
    failure::Failure,
    work::{How, Work},
};

/// Maximum number of kinds without requests that are remembered.
const IDLE_KINDS: usize = 64;

/// The script and the slot of a request. Requests of one kind can share a call.
pub(super) type Kind = (usize, u16);

/// The unsent requests of a connection, which all its handles share.
///
/// Callers batch their requests themselves, and wake the task only when it has something to send.
#[derive(Debug)]
pub(super) struct Outbox {
    health: Arc<Health>,
    inside: Mutex<Inside>,
    /// Wakes the task that sends.
    news: Notify,
}

#[derive(Debug, Default)]
struct Inside {
    /// There is a connection.
    is_open: bool,
    /// No handle is left.
    is_closed: bool,
    queues: BTreeMap<Kind, Queue>,
    /// Kinds with a call to send.
    due: Vec<Kind>,
    /// Calls that go alone.
    alone: Vec<Parcel>,
}

/// A call to send.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) batch: Sending,
    pub(super) asking: bool,
    /// `None` if it goes alone.
    pub(super) kind: Option<Kind>,
}

impl Outbox {
    pub(super) fn new(health: Arc<Health>) -> Self {
        Self {
            health,
            inside: Mutex::default(),
            news: Notify::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts a request, which is sent with others or alone.
    pub(super) fn post(&self, work: Work) -> Result<Pending, Failure> {
        let mut inside = self.lock();
        if !inside.is_open {
            drop(inside);
            return Err(Failure::NotConnected(self.health.reason().into()));
        }
        let Work { call, slot, how } = work;
        let (pending, is_due) = match how {
            How::Together => inside.join(call, slot, &self.health)?,
            _ => inside.post_alone(call, how, &self.health)?,
        };
        drop(inside);
        if is_due {
            self.news.notify_one();
        }
        Ok(pending)
    }

    /// Waits until there may be something to take out, or no handle is left.
    pub(super) async fn news(&self) {
        self.news.notified().await;
    }

    /// Takes out the calls to send now. Returns whether no handle is left.
    pub(super) fn take(&self, parcels: &mut Vec<Parcel>) -> bool {
        let mut inside = self.lock();
        parcels.append(&mut inside.alone);
        let mut due = mem::take(&mut inside.due);
        for kind in due.drain(..) {
            inside.take(kind, parcels);
        }
        inside.due = due;
        inside.is_closed
    }

    /// Records that a call of this kind has ended, and takes out the next calls.
    pub(super) fn ended(&self, kind: Kind, parcels: &mut Vec<Parcel>) {
        let mut inside = self.lock();
        if let Some(queue) = inside.queues.get_mut(&kind) {
            queue.ended();
        }
        inside.take(kind, parcels);
    }

    /// Takes out the requests that have waited long enough.
    pub(super) fn take_late(&self, parcels: &mut Vec<Parcel>) {
        let mut inside = self.lock();
        let waiting = inside.queues.iter().filter(|(_, queue)| !queue.is_empty());
        let kinds: Vec<Kind> = waiting.map(|(&kind, _)| kind).collect();
        for kind in kinds {
            inside.take(kind, parcels);
        }
    }

    /// Records that there is a new connection, with no call in flight.
    pub(super) fn open(&self) {
        self.lock().is_open = true;
    }

    /// Records that the connection is lost. All unsent requests fail with the reason in the health.
    pub(super) fn shut(&self) {
        let mut inside = self.lock();
        inside.is_open = false;
        inside.due.clear();
        let (queues, alone) = (mem::take(&mut inside.queues), mem::take(&mut inside.alone));
        drop(inside);
        drop(alone);
        queues.into_values().for_each(Queue::shut);
    }

    /// Records that no handle is left.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.news.notify_one();
    }

    /// Waits until no handle is left.
    pub(super) async fn closed(&self) {
        while !self.lock().is_closed {
            self.news().await;
        }
    }
}

/// A pending request, and whether the task has something to send.
type Posted = Result<(Pending, bool), Failure>;

impl Inside {
    /// Adds a request to the others of its kind.
    fn join(&mut self, call: Call, slot: u16, health: &Arc<Health>) -> Posted {
        let kind = (Arc::as_ptr(&call.script).addr(), slot);
        let queue = self.queues.entry(kind).or_default();
        let pending = queue.join(call, health)?;
        let is_due = !queue.is_due && queue.has_news() && queue.may_go();
        if is_due {
            queue.is_due = true;
            self.due.push(kind);
        }
        Ok((pending, is_due))
    }

    fn post_alone(&mut self, call: Call, how: How, health: &Arc<Health>) -> Posted {
        if self.alone.len() >= LONGEST {
            return Err(Failure::Full);
        }
        let batch = Arc::new(Batch::new(Arc::default(), Arc::clone(health)));
        let (pending, _) = batch.join(call);
        self.alone.push(Parcel {
            batch: batch.close(),
            asking: how == How::Asking,
            kind: None,
        });
        Ok((pending, true))
    }

    /// Takes out the calls of a kind to send now.
    fn take(&mut self, kind: Kind, parcels: &mut Vec<Parcel>) {
        let Some(queue) = self.queues.get_mut(&kind) else {
            return;
        };
        queue.is_due = false;
        while let Some(batch) = queue.take() {
            parcels.push(Parcel {
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
