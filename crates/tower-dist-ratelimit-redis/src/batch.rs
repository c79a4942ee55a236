use std::{
    future::Future,
    mem,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
};

use tower_dist_ratelimit::backend::toolkit::Health;

use super::{
    arguments::Told,
    call::Call,
    failure::Failure,
    reply::Words,
    rows::{Place, Rows},
};

/// Requests that are answered together: one allocation and one lock for all of them.
#[derive(Debug)]
pub(super) struct Batch {
    state: Mutex<State>,
    /// Number of unsent requests, in this batch and others of the kind.
    waiting: Arc<AtomicUsize>,
    health: Arc<Health>,
}

#[derive(Debug, Default)]
struct State {
    rows: Rows,
    waiters: Vec<Waiter>,
    /// Number of waiters that are not gone.
    staying: usize,
    stage: Stage,
}

/// The size of a batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Size {
    pub(super) rows: usize,
    /// Includes requests that are gone.
    pub(super) requests: usize,
}

#[derive(Debug)]
struct Waiter {
    place: Place,
    /// `None` before the first poll.
    waker: Option<Waker>,
    gone: bool,
}

#[derive(Debug, Default)]
enum Stage {
    /// Not sent yet.
    #[default]
    Waiting,
    Sent,
    Told(Vec<Told>),
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a request. The batch must not have been sent.
    pub(super) fn join(self: &Arc<Self>, call: Call) -> (Pending, Size) {
        let mut state = self.lock();
        let place = state.rows.push(call);
        let number = state.waiters.len();
        state.waiters.push(Waiter {
            place,
            waker: None,
            gone: false,
        });
        state.staying += 1;
        let size = Size {
            rows: state.rows.0.len(),
            requests: state.waiters.len(),
        };
        drop(state);
        self.waiting.fetch_add(1, Relaxed);
        let pending = Pending {
            batch: Some(Arc::clone(self)),
            number,
        };
        (pending, size)
    }

    /// Returns whether all requests are gone.
    pub(super) fn is_deserted(&self) -> bool {
        self.lock().staying == 0
    }

    /// Closes the batch. Requests that are gone are not sent.
    pub(super) fn close(self: Arc<Self>) -> Sending {
        let mut state = self.lock();
        state.stage = Stage::Sent;
        let mut rows = mem::take(&mut state.rows);
        let staying = state.staying;
        if staying < state.waiters.len() {
            state.close_ranks();
            rows.compact();
        }
        drop(state);
        self.waiting.fetch_sub(staying, Relaxed);
        Sending {
            batch: Some(self),
            rows,
            staying,
        }
    }

    fn end(&self, stage: Stage) {
        let mut state = self.lock();
        state.stage = stage;
        let wakers = state.waiters.iter_mut();
        let wakers: Vec<Waker> = wakers.filter_map(|waiter| waiter.waker.take()).collect();
        drop(state);
        for waker in wakers {
            waker.wake();
        }
    }

    /// Drops a request. An unsent request is not charged.
    fn leave(&self, number: usize) {
        let mut state = self.lock();
        let State {
            rows,
            waiters,
            staying,
            stage,
        } = &mut *state;
        let Some(waiter) = waiters.get_mut(number) else {
            return;
        };
        // Dropping a waker can do anything, so not under the lock.
        let _waker = waiter.waker.take();
        let unsent = matches!(stage, Stage::Waiting) && !mem::replace(&mut waiter.gone, true);
        if unsent {
            *staying -= 1;
            rows.pop_from(waiter.place.row);
            self.waiting.fetch_sub(1, Relaxed);
        }
        drop(state);
    }
}

impl State {
    /// Numbers the remaining requests as if the others had never joined.
    fn close_ranks(&mut self) {
        let mut next: Option<(usize, Place)> = None;
        for waiter in self.waiters.iter_mut().filter(|waiter| !waiter.gone) {
            let place = match next {
                Some((row, last)) if row == waiter.place.row => Place {
                    rank: last.rank + 1,
                    ..last
                },
                Some((_, last)) => Place {
                    row: last.row + 1,
                    rank: 0,
                },
                None => Place::default(),
            };
            next = Some((waiter.place.row, place));
            waiter.place = place;
        }
    }
}

/// A closed batch. Its owner has to answer it. If it is dropped, all its requests fail with the reason of the lost
/// connection.
#[derive(Debug)]
pub(super) struct Sending {
    batch: Option<Arc<Batch>>,
    pub(super) rows: Rows,
    staying: usize,
}

impl Sending {
    /// Number of its requests.
    pub(super) fn len(&self) -> usize {
        self.staying
    }

    pub(super) fn tell(mut self, told: Result<Vec<Told>, Failure>) {
        if let Some(batch) = self.batch.take() {
            batch.end(match told {
                Ok(told) => Stage::Told(told),
                Err(failure) => Stage::Failed(failure),
            });
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let Some(batch) = self.batch.take() {
            batch.end(Stage::Lost);
        }
    }
}

/// A pending request. It can be dropped at any time.
#[derive(Debug)]
pub(super) struct Pending {
    /// None once it is answered.
    batch: Option<Arc<Batch>>,
    number: usize,
}

impl Future for Pending {
    type Output = Result<Words, Failure>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let number = self.number;
        let Some(batch) = &self.batch else {
            return Poll::Pending;
        };
        let mut state = batch.lock();
        let State { waiters, stage, .. } = &mut *state;
        let waiter = &mut waiters[number];
        let answer = match stage {
            Stage::Waiting | Stage::Sent => {
                let old = match &waiter.waker {
                    Some(waker) if waker.will_wake(cx.waker()) => None,
                    _ => waiter.waker.replace(cx.waker().clone()),
                };
                drop(state);
                drop(old);
                return Poll::Pending;
            }
            Stage::Told(told) => match told.get(waiter.place.row) {
                Some(told) => Ok(told.words(waiter.place.rank)),
                None => Ok(Words::new()),
            },
            Stage::Failed(failure) => Err(failure.clone()),
            Stage::Lost => Err(Failure::NotConnected(batch.health.reason().into())),
        };
        drop(state);
        self.batch = None;
        Poll::Ready(answer)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(batch) = &self.batch {
            batch.leave(self.number);
        }
    }
}
