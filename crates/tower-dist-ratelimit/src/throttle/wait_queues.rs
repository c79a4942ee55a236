use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::coop::unconstrained,
    time::Instant,
};

use crate::Reason;

/// The minimum time in which the tokens of one request return, for each of its policies.
pub(super) type Spacing = SmallVec<[Duration; 2]>;

/// The [`Supply`] of each policy, as the first request in a queue knows it from its rejection.
pub(super) type Supplies = SmallVec<[Supply; 2]>;

/// The tokens of one policy that are available to the requests behind the first one in a queue.
///
/// A request's spacing is the time in which its tokens return. Let `wait` be the sum of a request's own spacing and the
/// spacings of all earlier requests except the first. If all earlier requests pass and no tokens are refunded, the
/// request normally passes no earlier than `from + wait - stock`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) from: Instant,
    /// With a bucket, usually an upper bound of the tokens that remain at `from` after the first request, expressed as
    /// the time in which they return. Zero with other algorithms.
    pub(super) stock: Duration,
}

/// The waiting requests: one queue for each combination of keys, first come, first served.
pub(crate) struct WaitQueues {
    pub(crate) max_waiters: usize,
    /// Number of requests in all queues. If it is zero at a call and the first decision admits the request, the request
    /// does not lock the queues.
    waiting: AtomicUsize,
    queues: Mutex<HashMap<Vec<u8>, WaitQueue>>,
}

struct WaitQueue {
    /// The only permit belongs to the first request. Tokio passes the permit on in the order in which the requests
    /// began to wait for it.
    turn: Arc<Semaphore>,
    members: usize,
    /// `None` until the present first request is rejected.
    supplies: Option<Supplies>,
    /// Sum of the spacings of all requests except the first.
    behind: Spacing,
}

impl WaitQueues {
    pub(crate) fn new(max_waiters: usize) -> Arc<Self> {
        Arc::new(Self {
            max_waiters,
            waiting: AtomicUsize::new(0),
            queues: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, WaitQueue>> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any request waits.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Joins the end of the queue with this key. If there is no such queue, a request with `supplies` starts one, and a
    /// request without them gets `None`. Joining fails if [`is_longer`](WaitQueue::is_longer) returns `true`. Joining
    /// and starting fail if already `max_waiters` requests wait, in all queues together.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &[u8],
        spacing: &Spacing,
        supplies: Option<Supplies>,
        end: Instant,
    ) -> Result<Option<QueuePlace>, Reason> {
        let mut queues = self.lock();
        match queues.get(key) {
            None if supplies.is_none() => return Ok(None),
            Some(queue) if queue.is_longer(spacing, end) => return Err(Reason::TooLong),
            // Requests join only under the lock, so this check is exact.
            _ if self.waiting.load(Relaxed) >= self.max_waiters => return Err(Reason::QueueFull),
            _ => {}
        }
        self.waiting.fetch_add(1, Relaxed);
        let queue = queues.entry(key.to_vec()).or_insert_with(|| WaitQueue {
            turn: Arc::new(Semaphore::new(1)),
            members: 0,
            supplies,
            behind: SmallVec::from_elem(Duration::ZERO, spacing.len()),
        });
        let turn = Arc::clone(&queue.turn);
        let permit = match queue.members {
            0 => turn.clone().try_acquire_owned().ok(),
            _ => {
                queue.add(spacing, Duration::saturating_add);
                None
            }
        };
        queue.members += 1;
        Ok(Some(QueuePlace {
            queues: Arc::clone(self),
            key: key.to_vec(),
            spacing: spacing.clone(),
            turn,
            permit,
        }))
    }
}

impl WaitQueue {
    /// Returns whether a request that joins now would normally pass after `end`, if all earlier requests pass and no
    /// tokens are refunded. `false` also means unknown.
    fn is_longer(&self, spacing: &Spacing, end: Instant) -> bool {
        let Some(supplies) = &self.supplies else {
            return false;
        };
        let mut waits = self.behind.iter().zip(spacing).zip(supplies);
        waits.any(|((behind, own), supply)| {
            let wait = behind.saturating_add(*own).saturating_sub(supply.stock);
            supply.from.checked_add(wait).is_none_or(|due| due > end)
        })
    }

    fn add(&mut self, spacing: &Spacing, sum: fn(Duration, Duration) -> Duration) {
        for (behind, own) in self.behind.iter_mut().zip(spacing) {
            *behind = sum(*behind, *own);
        }
    }
}

/// Prints no keys.
impl fmt::Debug for WaitQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitQueues").finish_non_exhaustive()
    }
}

/// A place in a queue. Dropping it leaves the queue.
pub(super) struct QueuePlace {
    queues: Arc<WaitQueues>,
    key: Vec<u8>,
    spacing: Spacing,
    turn: Arc<Semaphore>,
    /// `Some` for the first request in the queue.
    permit: Option<OwnedSemaphorePermit>,
}

impl QueuePlace {
    pub(super) fn is_first(&self) -> bool {
        self.permit.is_some()
    }

    /// Waits until this request is the first in its queue.
    pub(super) async fn first(&mut self) {
        // Unconstrained, so that the request enters the semaphore's queue even if its task has used up tokio's
        // cooperative budget.
        let permit = unconstrained(Arc::clone(&self.turn).acquire_owned()).await;
        if let Some(queue) = self.queues.lock().get_mut(&self.key) {
            queue.add(&self.spacing, Duration::saturating_sub);
        }
        self.permit = permit.ok();
    }

    /// Records the supplies of tokens, which the first request has learned from its rejection.
    pub(super) fn set_supplies(&self, supplies: Supplies) {
        if let Some(queue) = self.queues.lock().get_mut(&self.key) {
            queue.supplies = Some(supplies);
        }
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        // The permit is dropped after the lock is released, because dropping the permit wakes the next request.
        let mut queues = self.queues.lock();
        self.queues.waiting.fetch_sub(1, Relaxed);
        let Some(queue) = queues.get_mut(&self.key) else {
            return;
        };
        queue.members -= 1;
        if queue.members == 0 {
            queues.remove(&self.key);
        } else if self.permit.is_some() {
            queue.supplies = None;
        } else {
            queue.add(&self.spacing, Duration::saturating_sub);
        }
    }
}
