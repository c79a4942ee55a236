//! One task per key that is being decided: it loads the value, decides all waiting charges by it, and swaps it.

use std::{
    collections::{HashMap, VecDeque, hash_map::Entry},
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

use super::{
    clock::{self, Clock},
    failure::Failure,
    keys::bits,
    policy_set::PolicySet,
    store::CompareAndSwap,
};
use crate::{
    Decision, Decisions,
    arithmetic::{State, charge_all},
    backend::{BackendError, Charge, JointDecision, PolicyId, toolkit::Tag},
};

/// Maximum number of charges that wait at a time, over all keys.
const MOST: usize = 8192;

/// Maximum number of charges that one swap makes. Further ones wait for the next swap.
const BATCH: usize = 1024;

/// The pauses after the second lost race in a row and after further ones. With full jitter, writers that collide spread out; the
/// longest pause keeps a backend timeout of 50 ms within reach.
const FIRST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(8);

/// The operation on a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Acquire,
    Settle(i64),
    Reset,
}

/// Charges to one value, whose caller waits.
pub(super) struct Job {
    verb: Verb,
    /// Each with the place of its policy in the set.
    charges: SmallVec<[(usize, Charge<'static>); 1]>,
    answer: oneshot::Sender<Result<JointDecision, Failure>>,
    /// When it is no longer retried. `None` if that is later than a clock can tell.
    end: Option<Instant>,
    _room: OwnedSemaphorePermit,
}

/// The values that are being decided.
pub(super) struct Cells<C> {
    pub(super) timeout: Duration,
    pub(super) clock: Clock,
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    store: C,
    runtime: Handle,
    room: Arc<Semaphore>,
    /// The charges that wait for each value. A value that is here has a task.
    waiting: Mutex<HashMap<Cell, VecDeque<Job>>>,
}

/// The address of a value's set, and the tag of its key.
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
    /// # Errors
    ///
    /// Too many charges wait already.
    pub(super) fn new<C>(
        cells: &Cells<C>,
        verb: Verb,
        charges: SmallVec<[(usize, Charge<'static>); 1]>,
        answer: oneshot::Sender<Result<JointDecision, Failure>>,
    ) -> Result<Self, Failure> {
        let room = Arc::clone(&cells.shared.room).try_acquire_owned();
        Ok(Self {
            verb,
            charges,
            answer,
            end: Instant::now().checked_add(cells.timeout),
            _room: room.map_err(|_| Failure::busy(format!("{MOST} charges wait already")))?,
        })
    }

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
                // The other policies of the set get a charge of zero cost.
                let look = Charge::new(PolicyId::new(0), &[], 0);
                let mut charges: SmallVec<[_; 4]> = SmallVec::from_elem(look, states.len());
                for &(place, charge) in &self.charges {
                    charges[place] = charge;
                }
                let mut out: SmallVec<[_; 4]> =
                    SmallVec::from_elem(Decision::default(), states.len());
                let allowed = charge_all(states, nanos, &charges, &mut out);
                let decisions = self.charges.iter().map(|&(place, _)| out[place]);
                return JointDecision {
                    allowed,
                    decisions: decisions.collect(),
                };
            }
            Verb::Settle(delta) => {
                for (place, charge) in &self.charges {
                    let most = i64::try_from(charge.cost).unwrap_or(i64::MAX);
                    states[*place].settle(nanos, charge, delta.max(-most));
                }
            }
            Verb::Reset => {
                for &(place, _) in &self.charges {
                    states[place] = set.limits[place].unused(bits(tag));
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
            clock: clock::wall,
            shared: Arc::new(Shared {
                store,
                runtime: Handle::current(),
                room: Arc::new(Semaphore::new(MOST)),
                waiting: Mutex::default(),
            }),
        }
    }

    /// Queues a job, and starts a task for its value unless there is one.
    pub(super) fn push(&self, set: &Arc<PolicySet>, tag: Tag, job: Job) {
        let cell = (Arc::as_ptr(set).addr(), tag);
        let is_new = match self.shared.waiting().entry(cell) {
            Entry::Occupied(mut jobs) => {
                jobs.get_mut().push_back(job);
                false
            }
            Entry::Vacant(place) => {
                place.insert(VecDeque::from([job]));
                true
            }
        };
        if is_new {
            let task = Task {
                cells: self.clone(),
                set: Arc::clone(set),
                tag,
                cell,
                is_over: false,
            };
            // Not under the lock: a runtime that has ended drops the task here, which takes the lock.
            self.shared.runtime.spawn(task.run());
        }
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

/// Decides about one value for as long as charges wait for it.
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
    ) -> Result<T, Failure> {
        match timeout(self.cells.timeout, asked).await {
            Ok(answer) => answer.map_err(Failure::from),
            Err(_) => Err(Failure::late(self.cells.timeout)),
        }
    }

    /// Removes jobs whose caller has left, and fails jobs that have waited too long. If none is left, the task ends.
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
            let _ = late.answer.send(Err(Failure::busy(reason)));
        }
        if jobs.is_empty() {
            waiting.remove(&self.cell);
            self.is_over = true;
        }
        !self.is_over
    }

    /// Takes the next batch, without those whose caller has left meanwhile.
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

fn fail(jobs: impl IntoIterator<Item = Job>, failure: &Failure) {
    for job in jobs {
        let _ = job.answer.send(Err(failure.clone()));
    }
}

/// Waits before the next attempt, from the second lost race in a row on.
async fn pause(losses: usize) {
    let Some(place) = losses.checked_sub(2) else {
        return;
    };
    let mut pauses = Backoff::exponential(FIRST_PAUSE, LONGEST_PAUSE).schedule();
    sleep(pauses.nth(place.min(8)).unwrap_or(LONGEST_PAUSE)).await;
}
