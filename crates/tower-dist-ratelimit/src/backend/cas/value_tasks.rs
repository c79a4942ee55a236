//! The tasks that decide. Each value with waiting charges has one task, which loads the value, decides the waiting
//! charges by it, and swaps it if it changed.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::{
    runtime::Handle,
    sync::{OwnedSemaphorePermit, Semaphore, oneshot},
    time::{Instant, sleep, timeout},
};
use tower_jitter_retry::Backoff;

use super::{policy_set::PolicySet, store::CompareAndSwap};
use crate::{
    Decisions,
    arithmetic::{State, charge_all},
    backend::{
        BackendError, Charge, JointDecision, PolicyId,
        toolkit::{PendingVerdict, Tag, tag_bits, wall_clock},
    },
};

/// Maximum number of requests that wait at a time, over all values. A request counts once for each of its values.
const MOST: usize = 8192;

/// Maximum number of requests that are decided after one load. Further requests wait for the next load.
const BATCH: usize = 1024;

/// After the second lost race in a row, the pause is at most `FIRST_PAUSE`. From the fifth on, it is at most
/// `LONGEST_PAUSE`. Full jitter spreads out the writers that collide. The longest pause leaves time for several
/// attempts within a backend timeout of 50 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// The operation on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Acquire,
    Settle(i64),
    Reset,
}

/// Charges, each with its index in the request and the index of its policy in the set.
pub(super) type Charges = SmallVec<[(usize, usize, Charge<'static>); 1]>;

/// The charges of one request to one value.
struct QueuedRequest {
    action: Action,
    charges: Charges,
    answer: oneshot::Sender<Result<JointDecision, BackendError>>,
    /// After this time, the task begins no load for this request. A request that still needs a load then fails. `None`
    /// if an `Instant` cannot hold that time.
    end: Option<Instant>,
    _room: OwnedSemaphorePermit,
}

/// The store, and the tasks that decide the charges to its values.
pub(super) struct ValueTasks<C> {
    pub(super) timeout: Duration,
    /// Returns the time in nanoseconds since the start of 2020. Tests replace this clock.
    pub(super) clock: fn() -> u64,
    shared: Arc<SharedTasks<C>>,
}

struct SharedTasks<C> {
    store: C,
    runtime: Handle,
    room: Arc<Semaphore>,
    /// The waiting charges of each value. A value in this map has a task.
    waiting: Mutex<HashMap<ValueId, VecDeque<QueuedRequest>>>,
}

/// The identity of a value: the memory address of its policy set, and the tag (hash) of its key.
type ValueId = (usize, Tag);

impl<C> Clone for ValueTasks<C> {
    fn clone(&self) -> Self {
        Self {
            timeout: self.timeout,
            clock: self.clock,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C: CompareAndSwap> ValueTasks<C> {
    pub(super) fn new(store: C) -> Self {
        Self {
            timeout: Duration::from_millis(500),
            clock: wall_clock,
            shared: Arc::new(SharedTasks {
                store,
                runtime: Handle::current(),
                room: Arc::new(Semaphore::new(MOST)),
                waiting: Mutex::default(),
            }),
        }
    }

    /// Queues charges for a value. If the value has no task, starts one.
    ///
    /// # Errors
    ///
    /// 8,192 requests wait already, over all values. A request counts once for each of its values.
    pub(super) fn ask(
        &self,
        set: &Arc<PolicySet>,
        tag: Tag,
        action: Action,
        charges: Charges,
    ) -> Result<PendingVerdict, BackendError> {
        let room = Arc::clone(&self.shared.room).try_acquire_owned();
        let (answer, receiver) = oneshot::channel();
        let request = QueuedRequest {
            action,
            charges,
            answer,
            end: Instant::now().checked_add(self.timeout),
            _room: room.map_err(|_| BackendError::busy(format!("{MOST} charges wait already")))?,
        };
        let id = (Arc::as_ptr(set).addr(), tag);
        let mut waiting = self.shared.waiting();
        let is_new = !waiting.contains_key(&id);
        waiting.entry(id).or_default().push_back(request);
        drop(waiting);
        if is_new {
            let task = ValueTask {
                tasks: self.clone(),
                set: Arc::clone(set),
                tag,
                id,
                is_over: false,
            };
            // Spawned after the lock is released: a runtime that has shut down drops the task here, and the task's
            // `Drop` takes the lock.
            self.shared.runtime.spawn(task.run());
        }
        let ended = "the runtime that it was made on has ended, or the store has panicked";
        Ok(Box::pin(async move {
            let lost = |_| Err(BackendError::new(ended));
            receiver.await.unwrap_or_else(lost)
        }))
    }
}

#[cfg(test)]
#[cfg(feature = "conformance")]
impl<C> ValueTasks<C> {
    /// Returns whether no value has a task.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.waiting().is_empty()
    }
}

impl<C> SharedTasks<C> {
    fn waiting(&self) -> MutexGuard<'_, HashMap<ValueId, VecDeque<QueuedRequest>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one value. It ends when no charges wait.
struct ValueTask<C> {
    tasks: ValueTasks<C>,
    set: Arc<PolicySet>,
    tag: Tag,
    id: ValueId,
    is_over: bool,
}

impl<C: CompareAndSwap> ValueTask<C> {
    async fn run(mut self) {
        let key = self.set.keys.of(&self.tag).concat();
        let mut losses = 0;
        while self.has_requests() {
            let loaded = self.within(self.tasks.shared.store.load(&key)).await;
            let requests = self.take_requests();
            let (value, version) = match loaded {
                Ok(loaded) => loaded.unzip(),
                Err(failure) => {
                    fail(requests, &failure);
                    continue;
                }
            };
            let nanos = (self.tasks.clock)();
            let mut states = self.set.read(&self.tag, value.as_deref());
            let before = PolicySet::write(&states);
            let decide = |request| self.decide(request, &mut states, nanos);
            let verdicts = requests.iter().map(decide).collect();
            let value = PolicySet::write(&states);
            if value == before {
                answer(requests, verdicts);
                continue;
            }
            let ttl = self.set.ttl(&states, nanos);
            let swap = self.tasks.shared.store.swap(&key, version, &value, ttl);
            match self.within(swap).await {
                Ok(true) => {
                    losses = 0;
                    answer(requests, verdicts);
                }
                Ok(false) => {
                    losses += 1;
                    self.put_back(requests);
                    pause(losses).await;
                }
                Err(failure) => fail(requests, &failure),
            }
        }
    }

    /// Applies the action of a request to the states. Returns the answer to the request.
    fn decide(&self, request: &QueuedRequest, states: &mut [State], nanos: u64) -> JointDecision {
        match request.action {
            Action::Acquire => {
                // Policies of the set without a charge get a charge of zero cost.
                let look = Charge::new(PolicyId::new(0), &[], 0);
                let mut charges: SmallVec<[_; 4]> = SmallVec::from_elem(look, states.len());
                for &(_, place, charge) in &request.charges {
                    charges[place] = charge;
                }
                let mut out = Decisions::rejected(states.len());
                let allowed = charge_all(states, nanos, &charges, &mut out);
                let decisions = request.charges.iter().map(|&(_, place, _)| out[place]);
                return JointDecision {
                    allowed,
                    decisions: decisions.collect(),
                };
            }
            Action::Settle(delta) => {
                for &(_, place, charge) in &request.charges {
                    let most = i64::try_from(charge.cost).unwrap_or(i64::MAX);
                    states[place].settle(nanos, &charge, delta.max(-most));
                }
            }
            Action::Reset => {
                for &(_, place, _) in &request.charges {
                    states[place] = self.set.limits[place].unused(tag_bits(&self.tag));
                }
            }
        }
        JointDecision {
            allowed: true,
            decisions: Decisions::rejected(0),
        }
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.tasks.timeout;
        let late = |_| Err(BackendError::timeout(limit));
        timeout(limit, asked).await.unwrap_or_else(late)
    }

    /// Removes requests whose caller has dropped the future, and fails requests that have waited too long. Returns
    /// whether requests remain. If none remain, the task ends.
    fn has_requests(&mut self) -> bool {
        let now = Instant::now();
        let mut waiting = self.tasks.shared.waiting();
        let Some(requests) = waiting.get_mut(&self.id) else {
            return false;
        };
        requests.retain(|request| !request.answer.is_closed());
        let is_late = |request: &QueuedRequest| request.end.is_some_and(|end| end <= now);
        while requests.front().is_some_and(is_late)
            && let Some(late) = requests.pop_front()
        {
            let reason = format!("others changed the key for {:?}", self.tasks.timeout);
            let _ = late.answer.send(Err(BackendError::busy(reason)));
        }
        if requests.is_empty() {
            waiting.remove(&self.id);
            self.is_over = true;
        }
        !self.is_over
    }

    /// Takes the next batch, without requests whose caller has dropped the future meanwhile.
    fn take_requests(&self) -> Vec<QueuedRequest> {
        let mut waiting = self.tasks.shared.waiting();
        let Some(requests) = waiting.get_mut(&self.id) else {
            return Vec::new();
        };
        requests.retain(|request| !request.answer.is_closed());
        let batch = requests.len().min(BATCH);
        requests.drain(..batch).collect()
    }

    /// Puts a batch back at the front of the queue, in its order.
    fn put_back(&self, requests: Vec<QueuedRequest>) {
        if let Some(waiting) = self.tasks.shared.waiting().get_mut(&self.id) {
            for request in requests.into_iter().rev() {
                waiting.push_front(request);
            }
        }
    }
}

/// If the store panics or the runtime ends, drops the waiting charges, so their callers get an error. The next charge
/// to the value spawns a new task.
impl<C> Drop for ValueTask<C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.tasks.shared.waiting().remove(&self.id);
        }
    }
}

fn answer(requests: Vec<QueuedRequest>, verdicts: Vec<JointDecision>) {
    for (request, verdict) in requests.into_iter().zip(verdicts) {
        let _ = request.answer.send(Ok(verdict));
    }
}

fn fail(requests: Vec<QueuedRequest>, failure: &BackendError) {
    for request in requests {
        let _ = request.answer.send(Err(failure.clone()));
    }
}

/// Waits before the next attempt. `losses` is the number of lost races since the last successful swap. After the first
/// lost race there is no wait.
async fn pause(losses: usize) {
    let Some(place) = losses.checked_sub(2) else {
        return;
    };
    let mut pauses = Backoff::exponential(FIRST_PAUSE, LONGEST_PAUSE).schedule();
    sleep(pauses.nth(place.min(8)).unwrap_or(LONGEST_PAUSE)).await;
}
