//! What the late calls of the recent past have in common: the time that a set share of them exceeds.

#[cfg(all(test, tower_hedge_latency_loom))]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, tower_hedge_latency_loom)))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crate::quantile::{Sample, quantile};

/// A threshold is read off anew after so many samples, or so many microseconds: often enough to
/// follow a change within a hundredth of the default window, rarely enough that the reading costs a
/// busy service a few nanoseconds per call.
///
/// Nobody counts the samples: a bucket that has taken in another 256 is a sign of about as many.
const REFRESH_SAMPLES: u32 = 256;
const REFRESH_MICROS: u64 = 100_000;
/// Of a window that has this many times the samples that it needs, 1,000 beyond the threshold, more
/// would not make the threshold better than its buckets are: from there on, not every call is one.
const PLENTY: u64 = 100;
/// At least one of 2⁴ calls is a sample. Rarer ones would save next to nothing, and make a service
/// whose calls get rare hard to follow.
const RAREST: u32 = 4;
/// 2⁶⁴ ÷ the golden ratio, an odd number whose multiples are spread evenly (Knuth, *The Art of Computer
/// Programming*, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// No threshold is known.
const UNKNOWN: u64 = u64::MAX;

/// Learns from live latency when a call is late.
///
/// Two windows of samples, the current one and the one before it, count together, so that a quiet
/// moment does not forget what was learned. No thread waits for another: whoever finds that it is
/// time claims the refresh, and everybody else goes on with the old threshold.
///
/// Pure of clocks: `now` is an argument, in microseconds from any fixed instant.
#[derive(Debug)]
pub(crate) struct Estimator {
    windows: [Sample; 2],
    /// Which window samples go to.
    current: AtomicUsize,
    /// When it was opened.
    opened: AtomicU64,
    /// When the threshold was refreshed.
    refreshed: AtomicU64,
    /// Held by the one that refreshes.
    busy: AtomicBool,
    /// One of 2 to this power of the calls is a sample, and counts for as many.
    rarity: AtomicU32,
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

/// What was seen of a call's first attempt, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It took so long, or was waited for so long.
    End(u64),
    /// It was out for so long when a hedge overtook it.
    CutOff(u64),
}

impl Estimator {
    pub(crate) fn new() -> Self {
        Self {
            windows: [Sample::new(), Sample::new()],
            current: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            rarity: AtomicU32::new(0),
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

    /// For how many calls the one with this number counts, if it is to be recorded at all.
    ///
    /// Whether it is has nothing to do with what becomes of it, so that what is recorded is no other
    /// than what is not.
    #[inline]
    pub(crate) fn counts_for(&self, call: u64) -> Option<u32> {
        let rarity = self.rarity.load(Relaxed);
        (scattered(call).leading_zeros() >= rarity).then(|| 1 << rarity)
    }

    /// Takes in what was seen of a call that counts for so many.
    #[inline]
    pub(crate) fn record(
        &self,
        seen: Seen,
        calls: u32,
        now: impl FnOnce() -> u64,
        lesson: &Lesson,
    ) {
        // A thread that is held up here adds to a window that was closed meanwhile, where its sample
        // counts all the same. One that is held up for a whole window longer adds it to the next.
        let Some(window) = self.windows.get(self.current.load(Relaxed)) else {
            return;
        };
        let before = match seen {
            Seen::End(micros) => window.ended.add(micros, calls),
            Seen::CutOff(micros) => window.cut_off.add(micros, calls),
        };
        let after = before.wrapping_add(calls);
        let now = now();
        let since = now.saturating_sub(self.refreshed.load(Relaxed));
        if after / REFRESH_SAMPLES != before / REFRESH_SAMPLES || since >= REFRESH_MICROS {
            self.refresh(now, lesson);
        }
    }

    /// Reads the threshold of another lesson from the samples that are there, however few, if one is known.
    pub(crate) fn apply(&self, now: u64, lesson: &Lesson) {
        // A refresh takes microseconds.
        while !self.refresh(now, lesson) {
            std::thread::yield_now();
        }
    }

    /// Returns `false` if another thread refreshes.
    #[cold]
    fn refresh(&self, now: u64, lesson: &Lesson) -> bool {
        // Acquire and release: the next one sees which window is current, and since when.
        let claim = self.busy.compare_exchange(false, true, Acquire, Relaxed);
        if claim.is_err() {
            return false;
        }
        self.refreshed.store(now, Relaxed);
        self.rotate(now, lesson);
        let [one, other] = &self.windows;
        // A threshold of another quantile is worse than one of few samples.
        let least = self.threshold().map_or(lesson.samples, |_| 1);
        if let Some(threshold) = quantile([one, other], lesson.above, least) {
            self.threshold.store(threshold, Relaxed);
        }
        self.busy.store(false, Release);
        true
    }

    /// Closes the current window if it is full, and forgets the one before it.
    fn rotate(&self, now: u64, lesson: &Lesson) {
        let current = self.current.load(Relaxed);
        let [Some(full), Some(next)] = [current, 1 - current].map(|index| self.windows.get(index))
        else {
            return;
        };
        let rarity = self.rarity.load(Relaxed);
        let (calls, mut calls_before) = (full.total(), next.total());
        let is_over = now.saturating_sub(self.opened.load(Relaxed)) >= lesson.window;
        // The counts of a bucket must not overflow, however long a window is.
        let is_full = calls >> rarity >= lesson.samples;
        if (is_over && is_full) || calls > u64::from(u32::MAX / 2) {
            next.clear();
            calls_before = 0;
            self.current.store(1 - current, Relaxed);
            self.opened.store(now, Relaxed);
        }
        let rarity = match is_over && !is_full {
            // What was plenty has become little: a few samples, each for many calls, would fill the window
            // and say less than they seem to.
            true if rarity > 0 => {
                full.clear();
                0
            }
            true => 0,
            false => rarity_of(calls.max(calls_before), lesson),
        };
        self.rarity.store(rarity, Relaxed);
    }
}

/// A hash, so that samples are in step with no rhythm of the calls.
fn scattered(call: u64) -> u64 {
    let spread = call.wrapping_mul(SPREAD);
    (spread ^ spread >> 32).wrapping_mul(SPREAD)
}

/// How rare samples may be where so many calls come in a window.
fn rarity_of(calls: u64, lesson: &Lesson) -> u32 {
    let plenty = lesson.samples.saturating_mul(PLENTY).max(1);
    let times = (calls / plenty).checked_ilog2();
    times.unwrap_or(0).min(RAREST)
}

#[cfg(all(test, tower_hedge_latency_loom))]
mod loom_tests;
#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
