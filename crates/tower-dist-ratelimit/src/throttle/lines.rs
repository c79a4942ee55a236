use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use smallvec::SmallVec;
use tokio::time::Instant;

/// How long the tokens of one request take to come: one for each policy that is asked.
pub(super) type Spacing = SmallVec<[Duration; 2]>;

/// What the first in line knows about the tokens, from being rejected: one for each policy that is asked.
pub(super) type Outlook = SmallVec<[Supply; 2]>;

/// When those behind the first can go, as far as one policy is concerned: when their own tokens have come, counted from an
/// instant, less what is in stock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Supply {
    pub(super) from: Instant,
    pub(super) stock: Duration,
}

/// Who waits: one line for each combination of keys, first come, first served.
pub(super) struct Lines {
    max_waiters: usize,
    /// How many wait, so that who comes while nobody does takes no lock.
    waiting: AtomicUsize,
    lines: Mutex<HashMap<Arc<[u8]>, Line>>,
}

struct Line {
    key: Arc<[u8]>,
    /// None until the first has asked.
    outlook: Option<Outlook>,
    waiters: VecDeque<Waiter>,
    /// The sum of the spacings of all but the first.
    behind: Spacing,
    next_id: u64,
}

struct Waiter {
    id: u64,
    spacing: Spacing,
    waker: Option<Waker>,
}

/// Why somebody cannot wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turned {
    /// Too many wait.
    Full,
    /// The turn would come too late.
    TooLong,
}

impl Lines {
    pub(super) fn new(max_waiters: usize) -> Self {
        Self {
            max_waiters,
            waiting: AtomicUsize::new(0),
            lines: Mutex::new(HashMap::new()),
        }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Arc<[u8]>, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether anybody waits at all.
    pub(super) fn any(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }

    /// Joins the end of the line of this key, if there is one.
    pub(super) fn join_others(
        self: &Arc<Self>,
        key: &[u8],
        spacing: &Spacing,
        end: Instant,
    ) -> Option<Result<Place, Turned>> {
        let mut lines = self.lock();
        let line = lines.get_mut(key)?;
        Some(self.join_line(line, spacing, end))
    }

    /// Joins the end of the line of this key, and says whether that is its beginning. The outlook is that of the first.
    pub(super) fn join(
        self: &Arc<Self>,
        key: &[u8],
        spacing: &Spacing,
        outlook: Outlook,
        end: Instant,
    ) -> Result<(Place, bool), Turned> {
        let mut lines = self.lock();
        if let Some(line) = lines.get_mut(key) {
            return self
                .join_line(line, spacing, end)
                .map(|place| (place, false));
        }
        let key: Arc<[u8]> = key.into();
        let mut line = Line {
            key: Arc::clone(&key),
            outlook: Some(outlook),
            waiters: VecDeque::new(),
            behind: SmallVec::from_elem(Duration::ZERO, spacing.len()),
            next_id: 0,
        };
        let place = self.join_line(&mut line, spacing, end)?;
        lines.insert(key, line);
        Ok((place, true))
    }

    fn join_line(
        self: &Arc<Self>,
        line: &mut Line,
        spacing: &Spacing,
        end: Instant,
    ) -> Result<Place, Turned> {
        if !line.waiters.is_empty() && line.is_longer(spacing, end) {
            return Err(Turned::TooLong);
        }
        // All who join hold the lock.
        if self.waiting.load(Relaxed) >= self.max_waiters {
            return Err(Turned::Full);
        }
        self.waiting.fetch_add(1, Relaxed);
        let id = line.push(spacing);
        Ok(Place {
            lines: Arc::clone(self),
            key: Arc::clone(&line.key),
            id,
        })
    }
}

impl Line {
    /// Whether the turn of somebody who comes now certainly comes after `end`.
    fn is_longer(&self, spacing: &Spacing, end: Instant) -> bool {
        let Some(outlook) = &self.outlook else {
            return false;
        };
        let waits = self.behind.iter().zip(spacing).zip(outlook);
        waits.into_iter().any(|((behind, own), supply)| {
            let wait = behind.saturating_add(*own).saturating_sub(supply.stock);
            // Too far to say is later than anything.
            supply.from.checked_add(wait).is_none_or(|due| due > end)
        })
    }

    fn push(&mut self, spacing: &Spacing) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        if !self.waiters.is_empty() {
            for (behind, own) in self.behind.iter_mut().zip(spacing) {
                *behind = behind.saturating_add(*own);
            }
        }
        self.waiters.push_back(Waiter {
            id,
            spacing: spacing.clone(),
            waker: None,
        });
        id
    }

    /// Takes somebody out. Returns who has to be told that it is the first now, and has to ask.
    fn remove(&mut self, id: u64) -> Option<Waker> {
        let place = self.waiters.iter().position(|waiter| waiter.id == id)?;
        let gone = self.waiters.remove(place)?;
        let first = self.waiters.front_mut();
        // The first one is not behind anybody.
        let (spacing, waker) = match first {
            _ if place > 0 => (&gone.spacing, None),
            Some(first) => {
                self.outlook = None;
                (&first.spacing, first.waker.take())
            }
            None => return None,
        };
        for (behind, own) in self.behind.iter_mut().zip(spacing) {
            *behind = behind.saturating_sub(*own);
        }
        waker
    }
}

/// A place in a line; dropping it leaves the line.
pub(super) struct Place {
    lines: Arc<Lines>,
    key: Arc<[u8]>,
    id: u64,
}

impl Place {
    /// Whether all that came before have gone.
    pub(super) fn poll_first(&self, cx: &Context<'_>) -> Poll<()> {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return Poll::Ready(());
        };
        if line.waiters.front().is_none_or(|first| first.id == self.id) {
            return Poll::Ready(());
        }
        if let Some(waiter) = line.waiters.iter_mut().find(|waiter| waiter.id == self.id) {
            match &mut waiter.waker {
                Some(waker) => waker.clone_from(cx.waker()),
                waker => *waker = Some(cx.waker().clone()),
            }
        }
        Poll::Pending
    }

    /// The first has asked.
    pub(super) fn sees(&self, outlook: Outlook) {
        if let Some(line) = self.lines.lock().get_mut(&self.key) {
            line.outlook = Some(outlook);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.get_mut(&self.key) else {
            return;
        };
        self.lines.waiting.fetch_sub(1, Relaxed);
        let next = line.remove(self.id);
        if line.waiters.is_empty() {
            lines.remove(&self.key);
        }
        // Wakers run foreign code.
        drop(lines);
        if let Some(waker) = next {
            waker.wake();
        }
    }
}
