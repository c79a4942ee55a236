//! Learns the latency that a given share of the recent calls exceeds.

#[cfg(all(test, tower_hedge_latency_loom))]
use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
#[cfg(not(all(test, tower_hedge_latency_loom)))]
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};

use crate::quantile::{Sample, quantile};

/// The threshold is refreshed when the count of a histogram bucket reaches or passes a multiple of this number. So
/// refreshes cost a busy service a few nanoseconds per call.
const REFRESH_SAMPLES: u32 = 256;
/// The first sample at least this long after the last refresh also refreshes the threshold. This time is a hundredth of
/// the default window.
const REFRESH_MICROS: u64 = 100_000;
/// A window with this many times its required samples has at least 1,000 samples beyond the quantile. More samples
/// would not make the threshold more precise than its histogram bucket. So if a window has at least 200 calls per
/// required sample, the estimator samples only a part of the calls.
const PLENTY: u64 = 100;
/// The lowest sampling rate is one of 2⁴ calls. A lower rate would save next to nothing, and would adapt slowly when
/// calls become rare.
const RAREST: u32 = 4;
/// 2⁶⁴ ÷ the golden ratio, rounded to an odd number whose multiples are spread evenly (Knuth, *The Art of Computer
/// Programming*, 6.4).
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The value of an unknown threshold.
const UNKNOWN: u64 = u64::MAX;

/// Estimates a quantile of latency from live calls. The estimate is called the threshold.
///
/// The samples of the current and the previous window count together, so that there are samples when a new window
/// begins. [`record`](Self::record) waits for no other thread: the first thread that finds a refresh due claims it, and
/// the other threads use the old threshold.
///
/// The estimator reads no clock: `now` is an argument, in microseconds since a fixed instant.
#[derive(Debug)]
pub(crate) struct Estimator {
    windows: [Sample; 2],
    /// The index of the current window.
    current: AtomicUsize,
    /// The time at which the current window was opened.
    opened: AtomicU64,
    /// The time of the last refresh.
    refreshed: AtomicU64,
    /// Set while a thread refreshes the threshold.
    busy: AtomicBool,
    /// One of 2^`rarity` calls is a sample, and represents that number of calls.
    rarity: AtomicU32,
    /// The learned latency in microseconds, or [`UNKNOWN`].
    threshold: AtomicU64,
}

/// The quantile to learn, and the minimum size of a window. A window whose counts could overflow soon closes earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QuantileTarget {
    /// The share of calls that should exceed the threshold, in billionths.
    pub(crate) above: u64,
    /// Minimum duration of a window, in microseconds.
    pub(crate) window: u64,
    /// Minimum number of samples in a closed window, and for the first threshold.
    pub(crate) samples: u64,
}

impl QuantileTarget {
    /// The quantile of latency that the threshold estimates.
    pub(crate) fn quantile(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "it is at most a billion")]
        let above = self.above as f64;
        1.0 - above / 1e9
    }
}

/// The observed latency of a call's first attempt, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Observation {
    /// The attempt ended after this time, or the caller dropped the call after this time.
    Ended(u64),
    /// A hedge overtook the attempt after this time.
    CutOff(u64),
}

impl Default for Estimator {
    fn default() -> Self {
        Self {
            windows: Default::default(),
            current: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            refreshed: AtomicU64::new(0),
            busy: AtomicBool::new(false),
            rarity: AtomicU32::new(0),
            threshold: AtomicU64::new(UNKNOWN),
        }
    }
}

impl Estimator {
    /// Returns the latest threshold in microseconds, or `None` until a refresh has found enough samples. The threshold
    /// does not expire while no calls are recorded.
    pub(crate) fn threshold(&self) -> Option<u64> {
        match self.threshold.load(Relaxed) {
            UNKNOWN => None,
            threshold => Some(threshold),
        }
    }

    /// Returns `None` if the call with the number `call` is not sampled. Otherwise returns the number of calls that the
    /// sample represents.
    ///
    /// The choice of samples is independent of latency, so that the samples are not biased.
    #[inline]
    pub(crate) fn counts_for(&self, call: u64) -> Option<u32> {
        let rarity = self.rarity.load(Relaxed);
        (scattered(call).leading_zeros() >= rarity).then(|| 1 << rarity)
    }

    /// Records a sample that represents `calls` calls, and refreshes the threshold if a refresh is due.
    #[inline]
    pub(crate) fn record(
        &self,
        seen: Observation,
        calls: u32,
        now: impl FnOnce() -> u64,
        target: &QuantileTarget,
    ) {
        // A delayed thread may add its sample to a window that has just been closed. A closed window still counts. If
        // the thread is delayed by another whole window, it adds the sample to a newer window.
        let Some(window) = self.windows.get(self.current.load(Relaxed)) else {
            return;
        };
        let before = match seen {
            Observation::Ended(micros) => window.ended.add(micros, calls),
            Observation::CutOff(micros) => window.cut_off.add(micros, calls),
        };
        let after = before.wrapping_add(calls);
        let now = now();
        let since = now.saturating_sub(self.refreshed.load(Relaxed));
        if after / REFRESH_SAMPLES != before / REFRESH_SAMPLES || since >= REFRESH_MICROS {
            self.refresh(now, target);
        }
    }

    /// Computes the threshold for `target`. If a threshold is known, one sample is enough.
    pub(crate) fn apply(&self, now: u64, target: &QuantileTarget) {
        // Waits while another thread refreshes, which usually takes microseconds.
        while !self.refresh(now, target) {
            std::thread::yield_now();
        }
    }

    /// Computes the threshold. Returns `false` if another thread is refreshing.
    #[cold]
    fn refresh(&self, now: u64, target: &QuantileTarget) -> bool {
        // Acquire pairs with the release below: the next refresh sees the current window and its opening time.
        let claim = self.busy.compare_exchange(false, true, Acquire, Relaxed);
        if claim.is_err() {
            return false;
        }
        self.refreshed.store(now, Relaxed);
        self.rotate(now, target);
        let [one, other] = &self.windows;
        // If a threshold is known, one sample is enough. After a change of the quantile, a threshold from few samples
        // is better than the threshold of the old quantile.
        let least = self.threshold().map_or(target.samples, |_| 1);
        if let Some(threshold) = quantile([one, other], target.above, least) {
            self.threshold.store(threshold, Relaxed);
        }
        self.busy.store(false, Release);
        true
    }

    /// Closes the current window if it has lasted long enough and has enough samples, or if its counts could overflow
    /// soon. Closing clears the previous window, which then becomes the current one. Also adapts the sampling rate.
    fn rotate(&self, now: u64, target: &QuantileTarget) {
        let current = self.current.load(Relaxed);
        let [Some(full), Some(next)] = [current, 1 - current].map(|index| self.windows.get(index))
        else {
            return;
        };
        let rarity = self.rarity.load(Relaxed);
        let (calls, mut calls_before) = (full.total(), next.total());
        let is_over = now.saturating_sub(self.opened.load(Relaxed)) >= target.window;
        let is_full = calls >> rarity >= target.samples;
        // The comparison with `u32::MAX / 2` closes the window before a bucket's count could overflow.
        if (is_over && is_full) || calls > u64::from(u32::MAX / 2) {
            next.clear();
            calls_before = 0;
            self.current.store(1 - current, Relaxed);
            self.opened.store(now, Relaxed);
        }
        let rarity = match is_over && !is_full {
            // Calls became rare, so every call becomes a sample. The window drops its old samples, which represent
            // several calls each and would fill it too early. It keeps its opening time, so it closes as soon as it has
            // enough new samples.
            true if rarity > 0 => {
                full.clear();
                0
            }
            true => 0,
            false => rarity_of(calls.max(calls_before), target),
        };
        self.rarity.store(rarity, Relaxed);
    }
}

/// Hashes a call's number, so that sampling follows no rhythm of the calls.
fn scattered(call: u64) -> u64 {
    let spread = call.wrapping_mul(SPREAD);
    (spread ^ spread >> 32).wrapping_mul(SPREAD)
}

/// Returns the `rarity` of samples for this number of calls per window.
fn rarity_of(calls: u64, target: &QuantileTarget) -> u32 {
    let plenty = target.samples.saturating_mul(PLENTY).max(1);
    let times = (calls / plenty).checked_ilog2();
    times.unwrap_or(0).min(RAREST)
}

#[cfg(all(test, tower_hedge_latency_loom))]
mod loom_tests;
#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
