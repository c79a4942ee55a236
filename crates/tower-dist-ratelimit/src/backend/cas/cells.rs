//! The tasks that decide. Each value with waiting charges has one task, which loads the value, decides all waiting
//! charges by it, and swaps it.

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
    Decision, Decisions,
    arithmetic::{State, charge_all},
    backend::{
        BackendError, Charge, JointDecision, PolicyId,
        toolkit::{PendingVerdict, Tag, tag_bits, wall_clock},
    },
};

/// Maximum number of requests that wait at a time, over all values.
const MOST: usize = 8192;

/// Maximum number of requests that one swap serves. Further requests wait for the next swap.
const BATCH: usize = 1024;

/// Bounds of the pause from the second lost race in a row on. Full jitter spreads out the writers that collide. The
/// longest pause leaves time for several attempts within a backend timeout of 50 ms.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// The operation on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    Settle(i64),
    Reset,
}

/// Charges, each with its index in the request and the index of its policy in the set.
pub(super) type Charges = SmallVec<[(usize, usize, Charge<'static>); 1]>;

/// The charges of one request to one value, whose caller waits.
struct Job {
    verb: Verb,
    charges: Charges,
    answer: oneshot::Sender<Result<JointDecision, BackendError>>,
    /// The time after which the job is no longer retried. `None` if an `Instant` cannot hold that time.
    end: Option<Instant>,
    _room: OwnedSemaphorePermit,
}

/// The store, and the values that tasks are deciding.
pub(super) struct Cells<C> {
    pub(super) timeout: Duration,
    /// Returns the time in nanoseconds since the start of 2020. Tests replace this clock.
    pub(super) clock: fn() -> u64,
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    store: C,
    runtime: Handle,
    room: Arc<Semaphore>,
    /// The waiting charges of each value. A value in this map has a task.
    waiting: Mutex<HashMap<Cell, VecDeque<Job>>>,
}

/// The identity of a value: the memory address of its policy set, and the tag of its key.
type Cell = (usize, Tag);

impl<C> Clone for Cells<C> {
    fn clone(&self) -> Self {
        Self {
            timeout: self.timeout,
            clock: self.clock,
            shared: Arc::clone(&self.shared),
        }
    }
}

impl Job {
    /// Decides the charges, and changes the states accordingly.
    fn decide(
        &self,
        set: &PolicySet,
        tag: &Tag,
        states: &mut [State],
        nanos: u64,
    ) -> JointDecision {
        match self.verb {
            Verb::Acquire => {
                // Policies of the set without a charge get a charge of zero cost.
                let look = Charge::new(PolicyId::new(0), &[], 0);
                let mut charges: SmallVec<[_; 4]> = SmallVec::from_elem(look, states.len());
                for &(_, place, charge) in &self.charges {
                    charges[place] = charge;
                }
                let mut out: SmallVec<[_; 4]> =
                    SmallVec::from_elem(Decision::default(), states.len());
                let allowed = charge_all(states, nanos, &charges, &mut out);
                let decisions = self.charges.iter().map(|&(_, place, _)| out[place]);
                return JointDecision {
                    allowed,
                    decisions: decisions.collect(),
                };
            }
            Verb::Settle(delta) => {
                for &(_, place, charge) in &self.charges {
                    let most = i64::try_from(charge.cost).unwrap_or(i64::MAX);
                    states[place].settle(nanos, &charge, delta.max(-most));
                }
            }
            Verb::Reset => {
                for &(_, place, _) in &self.charges {
                    states[place] = set.limits[place].unused(tag_bits(tag));
                }
            }
        }
        JointDecision {
            allowed: true,
            decisions: Decisions::rejected(0),
        }
    }
}

impl<C: CompareAndSwap> Cells<C> {
    pub(super) fn new(store: C) -> Self {
        Self {
            timeout: Duration::from_millis(500),
            clock: wall_clock,
            shared: Arc::new(Shared {
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
    /// 8,192 requests wait already.
    pub(super) fn ask(
        &self,
        set: &Arc<PolicySet>,
        tag: Tag,
        verb: Verb,
        charges: Charges,
    ) -> Result<PendingVerdict, BackendError> {
        let room = Arc::clone(&self.shared.room).try_acquire_owned();
        let (answer, receiver) = oneshot::channel();
        let job = Job {
            verb,
            charges,
            answer,
            end: Instant::now().checked_add(self.timeout),
            _room: room.map_err(|_| BackendError::busy(format!("{MOST} charges wait already")))?,
        };
        let cell = (Arc::as_ptr(set).addr(), tag);
        let mut waiting = self.shared.waiting();
        let is_new = !waiting.contains_key(&cell);
        waiting.entry(cell).or_default().push_back(job);
        drop(waiting);
        if is_new {
            let task = Task {
                cells: self.clone(),
                set: Arc::clone(set),
                tag,
                cell,
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
impl<C> Cells<C> {
    /// Whether no value is being decided.
    pub(super) fn is_idle(&self) -> bool {
        self.shared.waiting().is_empty()
    }
}

impl<C> Shared<C> {
    fn waiting(&self) -> MutexGuard<'_, HashMap<Cell, VecDeque<Job>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The task of one value. It ends when no charges wait.
struct Task<C> {
    cells: Cells<C>,
    set: Arc<PolicySet>,
    tag: Tag,
    cell: Cell,
    is_over: bool,
}

impl<C: CompareAndSwap> Task<C> {
    async fn run(mut self) {
        let key = self.set.key(&self.tag);
        let mut losses = 0;
        while self.has_jobs() {
            let loaded = self.within(self.cells.shared.store.load(&key)).await;
            let jobs = self.take_jobs();
            let (value, version) = match loaded {
                Ok(loaded) => loaded.unzip(),
                Err(failure) => {
                    fail(jobs, &failure);
                    continue;
                }
            };
            let nanos = (self.cells.clock)();
            let mut states = self.set.read(&self.tag, value.as_deref());
            let before = PolicySet::write(&states);
            let decide = |job: Job| {
                let verdict = job.decide(&self.set, &self.tag, &mut states, nanos);
                (job, verdict)
            };
            let decided: Vec<(Job, JointDecision)> = jobs.into_iter().map(decide).collect();
            let value = PolicySet::write(&states);
            if value == before {
                answer(decided);
                continue;
            }
            let ttl = self.set.ttl(&states, nanos);
            let swap = self.cells.shared.store.swap(&key, version, &value, ttl);
            match self.within(swap).await {
                Ok(true) => {
                    losses = 0;
                    answer(decided);
                }
                Ok(false) => {
                    losses += 1;
                    self.put_back(decided);
                    pause(losses).await;
                }
                Err(failure) => fail(decided.into_iter().map(|(job, _)| job), &failure),
            }
        }
    }

    async fn within<T>(
        &self,
        asked: impl Future<Output = Result<T, BackendError>>,
    ) -> Result<T, BackendError> {
        let limit = self.cells.timeout;
        let late = |_| Err(BackendError::late(limit));
        timeout(limit, asked).await.unwrap_or_else(late)
    }

    /// Removes jobs whose caller has dropped the future, and fails jobs that have waited too long. Returns whether jobs
    /// remain. If none remain, the task ends.
    fn has_jobs(&mut self) -> bool {
        let now = Instant::now();
        let mut waiting = self.cells.shared.waiting();
        let Some(jobs) = waiting.get_mut(&self.cell) else {
            return false;
        };
        jobs.retain(|job| !job.answer.is_closed());
        while jobs
            .front()
            .and_then(|job| job.end)
            .is_some_and(|end| end <= now)
            && let Some(late) = jobs.pop_front()
        {
            let reason = format!("others changed the key for {:?}", self.cells.timeout);
            let _ = late.answer.send(Err(BackendError::busy(reason)));
        }
        if jobs.is_empty() {
            waiting.remove(&self.cell);
            self.is_over = true;
        }
        !self.is_over
    }

    /// Takes the next batch, without jobs whose caller has dropped the future meanwhile.
    fn take_jobs(&self) -> Vec<Job> {
        let mut waiting = self.cells.shared.waiting();
        let Some(jobs) = waiting.get_mut(&self.cell) else {
            return Vec::new();
        };
        jobs.retain(|job| !job.answer.is_closed());
        let batch = jobs.len().min(BATCH);
        jobs.drain(..batch).collect()
    }

    /// Puts a batch back to the front, in its order.
    fn put_back(&self, decided: Vec<(Job, JointDecision)>) {
        if let Some(jobs) = self.cells.shared.waiting().get_mut(&self.cell) {
            for (job, _) in decided.into_iter().rev() {
                jobs.push_front(job);
            }
        }
    }
}

/// If the store panics or the runtime ends, drops the waiting charges, so their callers get an error. The next charge to
/// the value spawns a new task.
impl<C> Drop for Task<C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.cells.shared.waiting().remove(&self.cell);
        }
    }
}

fn answer(decided: Vec<(Job, JointDecision)>) {
    for (job, verdict) in decided {
        let _ = job.answer.send(Ok(verdict));
    }
}

fn fail(jobs: impl IntoIterator<Item = Job>, failure: &BackendError) {
    for job in jobs {
        let _ = job.answer.send(Err(failure.clone()));
    }
}

/// Waits before the next attempt. After the first lost race in a row there is no wait.
async fn pause(losses: usize) {
    let Some(place) = losses.checked_sub(2) else {
        return;
    };
    let mut pauses = Backoff::exponential(FIRST_PAUSE, LONGEST_PAUSE).schedule();
    sleep(pauses.nth(place.min(8)).unwrap_or(LONGEST_PAUSE)).await;
}
