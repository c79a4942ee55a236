//! Counts of latencies, fine enough for quantiles and coarse enough for a few kilobytes.

#[cfg(all(test, tower_hedge_latency_loom))]
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(all(test, tower_hedge_latency_loom)))]
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Buckets per octave. From 32 µs on, the width of a bucket is at most 1/32 of its values.
const FINE: u64 = 32;
/// 32 exact buckets below 32 µs, and 31 octaves of 32 buckets up to 2³⁶ µs, which is 19 hours.
const BUCKETS: usize = match cfg!(all(test, tower_hedge_latency_loom)) {
    false => 1024,
    true => 2,
};

/// A log-linear histogram of times in microseconds. It takes 4 KB, and any number of threads may add to it
/// concurrently.
///
/// All orderings are relaxed: no count depends on another, and a reader that misses a concurrent count usually sees it
/// the next time. A count that is added during `clear` may be lost.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[AtomicU32]>,
    /// A reader skips the buckets below `lowest` and above `highest`, which usually have no counts.
    lowest: AtomicUsize,
    highest: AtomicUsize,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            lowest: AtomicUsize::new(BUCKETS - 1),
            highest: AtomicUsize::new(0),
        }
    }
}

impl Histogram {
    /// Adds `times` to the count of a latency; latencies beyond the range count as the longest. Returns the bucket's
    /// previous count.
    #[inline]
    pub(crate) fn add(&self, micros: u64, times: u32) -> u32 {
        let bucket = bucket(micros);
        if bucket < self.lowest.load(Relaxed) {
            self.lowest.fetch_min(bucket, Relaxed);
        }
        if bucket > self.highest.load(Relaxed) {
            self.highest.fetch_max(bucket, Relaxed);
        }
        let count = self.counts.get(bucket);
        count.map_or(0, |count| count.fetch_add(times, Relaxed))
    }

    /// The sum of all counts.
    pub(crate) fn total(&self) -> u64 {
        let buckets = self.lowest()..=self.highest();
        buckets.map(|bucket| self.count(bucket)).sum()
    }

    /// Clears all counts.
    pub(crate) fn clear(&self) {
        self.lowest.store(BUCKETS - 1, Relaxed);
        self.highest.store(0, Relaxed);
        for count in &self.counts {
            count.store(0, Relaxed);
        }
    }

    pub(crate) fn count(&self, bucket: usize) -> u64 {
        self.counts
            .get(bucket)
            .map_or(0, |count| count.load(Relaxed).into())
    }

    pub(crate) fn lowest(&self) -> usize {
        self.lowest.load(Relaxed)
    }

    pub(crate) fn highest(&self) -> usize {
        self.highest.load(Relaxed)
    }
}

fn bucket(micros: u64) -> usize {
    let index = match micros.checked_ilog2() {
        Some(exponent @ 5..) => {
            let octave = u64::from(exponent) - 4;
            octave * FINE + ((micros >> (exponent - 5)) % FINE)
        }
        _ => micros,
    };
    usize::try_from(index).map_or(BUCKETS - 1, |index| index.min(BUCKETS - 1))
}

/// The minimum time in `bucket`, in microseconds.
pub(crate) fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / FINE {
        0 => bucket,
        octave => (FINE + bucket % FINE) << (octave - 1),
    }
}

#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
