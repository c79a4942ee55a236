use std::{
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use tokio::task::yield_now;
use tower_dist_ratelimit::backend::toolkit::Health;

use super::{
    arguments::RowAnswer,
    call::ScriptCall,
    failure::Failure,
    reply::Replies,
    rows::{Place, Rows},
    run::can_follow,
};

/// Maximum number of rows per call. A row is one request, or a run of equal requests to one bucket. With 32 rows, a
/// row's share of a call's fixed cost is small. Such a call for a token bucket occupies the server for 0.1 to 0.2 ms.
pub(super) const MOST_ROWS: usize = 32;

/// Maximum number of requests per batch, including requests whose caller has left. It bounds the memory of a batch.
const MOST_REQUESTS: usize = 256;

/// Number of callers that are woken at a time. While they run, the others of the batch wait, so the server can decide on
/// the first callers' next requests before the last callers have run.
const GROUP: usize = MOST_REQUESTS / 2;

/// The requests of one call. They share one lock.
#[derive(Debug)]
pub(super) struct Batch {
    state: Mutex<BatchState>,
    /// Number of unsent requests in the batch's queue. All batches of the queue share the counter. A batch outside of a
    /// queue has its own.
    waiting: Arc<AtomicUsize>,
    health: Arc<Health>,
}

#[derive(Debug, Default)]
struct BatchState {
    /// One call per row, including the rows whose callers have all left. Empty after the batch was closed.
    calls: Vec<Option<ScriptCall>>,
    waiters: Vec<Waiter>,
    stage: Stage,
}

#[derive(Debug)]
struct Waiter {
    /// `false` after the batch was closed, or after the caller left.
    is_unsent: bool,
    /// Before the batch is closed, its row is the index in `BatchState::calls`, and its rank has no meaning.
    place: Place,
    /// Wakes the caller. `None` before the first poll, after the call has ended, and after the caller left.
    waker: Option<Waker>,
}

#[derive(Debug, Default)]
enum Stage {
    /// No answer yet.
    #[default]
    Waiting,
    RowAnswer(Vec<RowAnswer>),
    Failed(Failure),
    /// The connection ended without an answer.
    Lost,
}

impl Batch {
    pub(super) fn new(waiting: Arc<AtomicUsize>, health: Arc<Health>) -> Self {
        Self {
            state: Mutex::default(),
            waiting,
            health,
        }
    }

    fn lock(&self) -> MutexGuard<'_, BatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. Returns its future, and whether the batch is now full. The batch must not be closed yet.
    pub(super) fn join(self: &Arc<Self>, call: ScriptCall) -> (PendingReply, bool) {
        let mut state = self.lock();
        let last = state.calls.last().and_then(Option::as_ref);
        if !last.is_some_and(|last| can_follow(last, &call)) {
            state.calls.push(Some(call));
        }
        let (rows, number) = (state.calls.len(), state.waiters.len());
        state.waiters.push(Waiter {
            is_unsent: true,
            place: Place {
                row: rows - 1,
                rank: 0,
            },
            waker: None,
        });
        let is_full = rows >= MOST_ROWS || number + 1 >= MOST_REQUESTS;
        drop(state);
        self.waiting.fetch_add(1, Relaxed);
        let pending = PendingReply {
            batch: Some(Arc::clone(self)),
            number,
        };
        (pending, is_full)
    }

    /// Returns whether all callers have left. The batch must not be closed yet.
    pub(super) fn is_deserted(&self) -> bool {
        let state = self.lock();
        state.waiters.iter().all(|waiter| !waiter.is_unsent)
    }

    /// Closes the batch, and takes out its requests, except those whose caller has left.
    pub(super) fn close(self: Arc<Self>) -> ClosedBatch {
        let mut state = self.lock();
        let mut calls = mem::take(&mut state.calls);
        let (mut rows, mut requests) = (Rows::default(), 0);
        for waiter in &mut state.waiters {
            if mem::take(&mut waiter.is_unsent) {
                // The first request of a row finds the row's call, the others of the row follow it.
                let first = calls[waiter.place.row].take();
                waiter.place = rows.push(first);
                requests += 1;
            }
        }
        drop(state);
        self.waiting.fetch_sub(requests, Relaxed);
        ClosedBatch {
            batch: self,
            woken: 0,
            rows,
        }
    }

    /// Records that a caller has left. If the batch is not closed yet, the caller's request is never sent or charged.
    fn leave(&self, number: usize) {
        let mut state = self.lock();
        let Some(waiter) = state.waiters.get_mut(number) else {
            return;
        };
        let waker = waiter.waker.take();
        if mem::take(&mut waiter.is_unsent) {
            // Under the lock: a batch that counts as deserted must not count as waiting.
            self.waiting.fetch_sub(1, Relaxed);
        }
        drop(state);
        // Dropping a waker can run foreign code, so it happens outside of the lock.
        drop(waker);
    }
}

/// A closed batch, which waits for its answer. If it is dropped without an answer, its requests fail with the last
/// reason that [`Health`] has recorded.
#[derive(Debug)]
pub(super) struct ClosedBatch {
    batch: Arc<Batch>,
    /// Number of callers that were woken.
    woken: usize,
    pub(super) rows: Rows,
}

impl ClosedBatch {
    /// Passes the answer to the callers, and wakes them in groups. Dropping the future wakes all of them.
    pub(super) async fn answer(mut self, row_answers: Result<Vec<RowAnswer>, Failure>) {
        self.batch.lock().stage = match row_answers {
            Ok(row_answers) => Stage::RowAnswer(row_answers),
            Err(failure) => Stage::Failed(failure),
        };
        while self.wake(GROUP) {
            yield_now().await;
        }
    }

    /// Wakes the next `number` callers. Returns whether there are more.
    fn wake(&mut self, number: usize) -> bool {
        let mut state = self.batch.lock();
        let next = state.waiters.iter_mut().skip(self.woken).take(number);
        let wakers: Vec<Waker> = next.filter_map(|waiter| waiter.waker.take()).collect();
        self.woken = self.woken.saturating_add(number);
        let has_more = self.woken < state.waiters.len();
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        has_more
    }
}

impl Drop for ClosedBatch {
    fn drop(&mut self) {
        let mut state = self.batch.lock();
        if let Stage::Waiting = state.stage {
            state.stage = Stage::Lost;
        }
        drop(state);
        self.wake(usize::MAX);
    }
}

/// The future of the answer to one request. It can be dropped at any time.
#[derive(Debug)]
pub(super) struct PendingReply {
    /// `None` after the future has returned the answer.
    batch: Option<Arc<Batch>>,
    number: usize,
}

impl Future for PendingReply {
    type Output = Result<Replies, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        let Some(batch) = &self.batch else {
            return Poll::Pending;
        };
        let mut state = batch.lock();
        let BatchState { waiters, stage, .. } = &mut *state;
        let waiter = &mut waiters[number];
        let answer = match stage {
            Stage::Waiting => {
                let old = match &waiter.waker {
                    Some(waker) if waker.will_wake(cx.waker()) => None,
                    _ => waiter.waker.replace(cx.waker().clone()),
                };
                drop(state);
                drop(old);
                return Poll::Pending;
            }
            Stage::RowAnswer(row_answers) => match row_answers.get(waiter.place.row) {
                Some(row_answers) => Ok(row_answers.replies(waiter.place.rank)),
                None => Ok(Replies::new()),
            },
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Lost => Err(Failure::NotConnected(batch.health.reason().into())),
        };
        drop(state);
        self.batch = None;
        Poll::Ready(answer)
    }
}

impl Drop for PendingReply {
    fn drop(&mut self) {
        if let Some(batch) = &self.batch {
            batch.leave(self.number);
        }
    }
}
