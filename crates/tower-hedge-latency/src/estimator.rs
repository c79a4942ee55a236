//! What the late calls of the recent past have in common: the time that a set share of them exceeds.

#[cfg(all(test, tower_hedge_latency_loom))]
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, tower_hedge_latency_loom)))]
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use crate::histogram::{Histogram, quantile};

/// A threshold is read off anew after so many samples, or so many microseconds: often enough to
/// follow a change within a hundredth of the default window, rarely enough that the reading costs a
/// busy service a few nanoseconds per call.
///
/// Nobody counts the samples: a bucket that has taken in another 256 is a sign of about as many.
const REFRESH_SAMPLES: u32 = 256;
const REFRESH_MICROS: u64 = 100_000;
/// Once a bucket has taken in so many, it is asked what time it is only when it has taken in as many
/// again: fewer samples would hardly move the threshold.
const TIMED_SAMPLES: u32 = 8;

/// No threshold is known.
const UNKNOWN: u64 = u64::MAX;

/// Learns from live latency when a call is late.
///
/// Two windows of samples, the current one and the one before it, count together, so that a quiet
/// moment does not forget what was learned. No thread waits for another: whoever finds that it is
/// time claims the refresh, and everybody else goes on with the old threshold.
///
/// Pure of clocks: `now` is an argument, in microseconds from any fixed instant, and called only if
/// it matters.
#[derive(Debug)]
pub(crate) struct Estimator {
    windows: [Histogram; 2],
    /// Which window samples go to.
    current: AtomicUsize,
    /// When it was opened.
    opened: AtomicU64,
    /// When the threshold was refreshed.
    refreshed: AtomicU64,
    /// How many samples were in windows that are gone.
    forgotten: AtomicU64,
    /// Held by the one that refreshes.
    busy: AtomicBool,
    /// In microseconds.
    threshold: AtomicU64,
}

/// What is to be learned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lesson {
    /// The share of calls that are to exceed the threshold, in billionths.
    pub(crate) above: u64,
    /// The least time, in microseconds, before a window is closed.
    pub(crate) window: u64,
    /// The least number of samples before a window is closed, and before there is a threshold.
    pub(crate) samples: u64,
}

impl Estimator {
    pub(crate) fn new() -> Self {
        Self {
            windows: [Histogram::new(), Histogram::new()],
            current: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
            forgotten: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            threshold: AtomicU64::new(UNKNOWN),
        }
    }

    /// The latest threshold in microseconds; `None` until there are samples enough. It stays while
    /// nothing is recorded.
    pub(crate) fn threshold(&self) -> Option<u64> {
        match self.threshold.load(Relaxed) {
            UNKNOWN => None,
            threshold => Some(threshold),
        }
    }

    /// How many samples there were, ever.
    pub(crate) fn recorded(&self) -> u64 {
        let remembered = self.windows.iter().map(Histogram::grand_total);
        self.forgotten.load(Relaxed) + remembered.sum::<u64>()
    }

    /// Takes a sample, in microseconds.
    #[inline]
    pub(crate) fn record(&self, micros: u64, now: impl FnOnce() -> u64, lesson: &Lesson) {
        // A thread that is held up here adds to a window that was closed meanwhile, where its sample
        // counts all the same. One that is held up for a whole window longer adds it to the next.
        let window = self.windows.get(self.current.load(Relaxed));
        let alike = window.map_or(0, |window| window.add(micros));
        if alike < TIMED_SAMPLES || alike.is_multiple_of(TIMED_SAMPLES) {
            let now = now();
            let since = now.saturating_sub(self.refreshed.load(Relaxed));
            if alike.is_multiple_of(REFRESH_SAMPLES) || since >= REFRESH_MICROS {
                self.refresh(now, lesson);
            }
        }
    }

    #[cold]
    fn refresh(&self, now: u64, lesson: &Lesson) {
        // Acquire and release: the next one sees which window is current, and since when.
        let claim = self.busy.compare_exchange(false, true, Acquire, Relaxed);
        if claim.is_err() {
            return;
        }
        self.refreshed.store(now, Relaxed);
        self.rotate(now, lesson);
        let [one, other] = &self.windows;
        if let Some(threshold) = quantile([one, other], lesson.above, lesson.samples) {
            self.threshold.store(threshold, Relaxed);
        }
        self.busy.store(false, Release);
    }

    /// Closes the current window if it is full, and forgets the one before it.
    fn rotate(&self, now: u64, lesson: &Lesson) {
        let current = self.current.load(Relaxed);
        let is_due = now.saturating_sub(self.opened.load(Relaxed)) >= lesson.window;
        let [Some(full), Some(next)] = [current, 1 - current].map(|index| self.windows.get(index))
        else {
            return;
        };
        if is_due && full.total() >= lesson.samples {
            self.forgotten.fetch_add(next.clear(), Relaxed);
            self.current.store(1 - current, Relaxed);
            self.opened.store(now, Relaxed);
        }
    }
}

#[cfg(all(test, tower_hedge_latency_loom))]
mod loom_tests;
#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
