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

/// The time in which the tokens of one request return, for each of its policies.
pub(super) type Spacing = SmallVec<[Duration; 2]>;

/// The supply of tokens for each policy, as the first request in a line knows it from its rejection.
pub(super) type Outlook = SmallVec<[Supply; 2]>;

/// The tokens of one policy that are available to the requests behind the first one in a line.
///
/// A request passes no earlier than `from`, plus its own spacing and the spacings of all requests between the first one and
/// this one, minus `stock`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) from: Instant,
    /// The tokens that remain at `from` after the first request, as the time in which they return.
    pub(super) stock: Duration,
}

/// The waiting requests: one line for each combination of keys, first come, first served.
pub(crate) struct WaitingLines {
    pub(crate) max_waiters: usize,
    /// Number of requests in all lines. If it is zero, a new request takes no lock.
    waiting: AtomicUsize,
    lines: Mutex<HashMap<Vec<u8>, WaitingLine>>,
}

struct WaitingLine {
    /// The only permit belongs to the first request. Tokio passes the permit on in the order of the requests.
    turn: Arc<Semaphore>,
    members: usize,
    /// `None` until the first request has a decision.
    outlook: Option<Outlook>,
    /// Sum of the spacings of all requests but the first.
    behind: Spacing,
}

impl WaitingLines {
    pub(crate) fn new(max_waiters: usize) -> Arc<Self> {
        Arc::new(Self {
            max_waiters,
            waiting: AtomicUsize::new(0),
            lines: Mutex::default(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Vec<u8>, WaitingLine>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any request waits.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Joins the end of the line with this key. If there is no such line, a request with an outlook starts one. A request
    /// without an outlook then gets `None`.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &[u8],
        spacing: &Spacing,
        outlook: Option<Outlook>,
        end: Instant,
    ) -> Result<Option<Place>, Reason> {
        let mut lines = self.lock();
        match lines.get(key) {
            None if outlook.is_none() => return Ok(None),
            Some(line) if line.is_longer(spacing, end) => return Err(Reason::TooLong),
            // Requests join only under the lock, so this check is exact.
            _ if self.waiting.load(Relaxed) >= self.max_waiters => return Err(Reason::QueueFull),
            _ => {}
        }
        self.waiting.fetch_add(1, Relaxed);
        let line = lines.entry(key.to_vec()).or_insert_with(|| WaitingLine {
            turn: Arc::new(Semaphore::new(1)),
            members: 0,
            outlook,
            behind: SmallVec::from_elem(Duration::ZERO, spacing.len()),
        });
        let turn = Arc::clone(&line.turn);
        let permit = match line.members {
            0 => turn.clone().try_acquire_owned().ok(),
            _ => {
                line.add(spacing, Duration::saturating_add);
                None
            }
        };
        line.members += 1;
        Ok(Some(Place {
            lines: Arc::clone(self),
            key: key.to_vec(),
            spacing: spacing.clone(),
            turn,
            permit,
        }))
    }
}

impl WaitingLine {
    /// Whether a request that joins now certainly gets its turn after `end`.
    fn is_longer(&self, spacing: &Spacing, end: Instant) -> bool {
        let Some(outlook) = &self.outlook else {
            return false;
        };
        let mut waits = self.behind.iter().zip(spacing).zip(outlook);
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
impl fmt::Debug for WaitingLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitingLines")
            .field("max_waiters", &self.max_waiters)
            .finish_non_exhaustive()
    }
}

/// A place in a line. Dropping it leaves the line.
pub(super) struct Place {
    lines: Arc<WaitingLines>,
    key: Vec<u8>,
    spacing: Spacing,
    turn: Arc<Semaphore>,
    /// `Some` for the first request in the line.
    permit: Option<OwnedSemaphorePermit>,
}

impl Place {
    pub(super) fn is_first(&self) -> bool {
        self.permit.is_some()
    }

    /// Waits until all earlier requests have left.
    pub(super) async fn first(&mut self) {
        // Unconstrained, so that the request enters the semaphore's queue even if its task has used up its budget.
        let permit = unconstrained(Arc::clone(&self.turn).acquire_owned()).await;
        if let Some(line) = self.lines.lock().get_mut(&self.key) {
            line.add(&self.spacing, Duration::saturating_sub);
        }
        self.permit = permit.ok();
    }

    /// Records the outlook of the first request, which was rejected.
    pub(super) fn sees(&self, outlook: Outlook) {
        if let Some(line) = self.lines.lock().get_mut(&self.key) {
            line.outlook = Some(outlook);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // The permit is dropped after the lock is released, because dropping the permit wakes the next request.
        let mut lines = self.lines.lock();
        self.lines.waiting.fetch_sub(1, Relaxed);
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        line.members -= 1;
        if line.members == 0 {
            lines.remove(&self.key);
        } else if self.permit.is_some() {
            line.outlook = None;
        } else {
            line.add(&self.spacing, Duration::saturating_sub);
        }
    }
}
