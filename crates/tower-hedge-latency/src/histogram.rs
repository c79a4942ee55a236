//! Counts of latencies, fine enough to read a quantile from, coarse enough to be a few kilobytes.

#[cfg(all(test, tower_hedge_latency_loom))]
use loom::sync::atomic::{AtomicU32, AtomicUsize};
use std::sync::atomic::Ordering::Relaxed;
#[cfg(not(all(test, tower_hedge_latency_loom)))]
use std::sync::atomic::{AtomicU32, AtomicUsize};

/// Sub-buckets per octave: a bucket is at most 1/32 as wide as its values are large.
const FINE: u64 = 32;
/// 32 exact ones below 32 µs, and 31 octaves of 32 from there to 2³⁶ µs, which is 19 hours.
const BUCKETS: usize = match cfg!(all(test, tower_hedge_latency_loom)) {
    false => 1024,
    true => 2,
};
/// One billion.
const WHOLE: u64 = 1_000_000_000;

/// A log-linear histogram of times in microseconds, in 4 KB, that any number of threads add to.
///
/// Relaxed ordering throughout: no count says anything about another, and a reader that misses one
/// that is being added sees it the next time.
#[derive(Debug)]
pub(crate) struct Histogram {
    counts: Box<[AtomicU32]>,
    /// Where counts may be other than 0. A service's answers lie within a few octaves, and these
    /// keep a reader from walking through all the others.
    lowest: AtomicUsize,
    highest: AtomicUsize,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: (0..BUCKETS).map(|_| AtomicU32::new(0)).collect(),
            lowest: AtomicUsize::new(BUCKETS - 1),
            highest: AtomicUsize::new(0),
        }
    }

    /// Counts a time; one that is too long counts as the longest. Says how many there are in its
    /// bucket, this one included.
    #[inline]
    pub(crate) fn add(&self, micros: u64) -> u32 {
        let bucket = bucket(micros);
        if bucket < self.lowest.load(Relaxed) {
            self.lowest.fetch_min(bucket, Relaxed);
        }
        if bucket > self.highest.load(Relaxed) {
            self.highest.fetch_max(bucket, Relaxed);
        }
        let count = self.counts.get(bucket);
        count.map_or(0, |count| count.fetch_add(1, Relaxed).wrapping_add(1))
    }

    /// How many times were counted.
    pub(crate) fn total(&self) -> u64 {
        let buckets = self.lowest()..=self.highest();
        buckets.map(|bucket| self.count(bucket)).sum()
    }

    /// Takes everything out, and says how many times that were. None is lost that is being added.
    pub(crate) fn clear(&self) -> u64 {
        self.lowest.store(BUCKETS - 1, Relaxed);
        self.highest.store(0, Relaxed);
        let counts = self.counts.iter();
        counts.map(|count| u64::from(count.swap(0, Relaxed))).sum()
    }

    /// All of them, also one that was added while the histogram was cleared.
    pub(crate) fn grand_total(&self) -> u64 {
        let counts = self.counts.iter();
        counts.map(|count| u64::from(count.load(Relaxed))).sum()
    }

    fn count(&self, bucket: usize) -> u64 {
        self.counts
            .get(bucket)
            .map_or(0, |count| count.load(Relaxed).into())
    }

    fn lowest(&self) -> usize {
        self.lowest.load(Relaxed)
    }

    fn highest(&self) -> usize {
        self.highest.load(Relaxed)
    }
}

/// The time that `above` billionths of what two histograms counted exceed, in microseconds; `None`
/// if they counted fewer than `least` times.
///
/// Interpolated inside its bucket, so at most one bucket off. A bucket that holds more than a
/// quarter of everything is taken whole: times that are all nearly the same lie anywhere in it, and
/// a value below them would make nearly all of them late.
pub(crate) fn quantile(of: [&Histogram; 2], above: u64, least: u64) -> Option<u64> {
    let [one, other] = of;
    let total = one.total() + other.total();
    if total == 0 || total < least {
        return None;
    }
    let rank = total - share(total, above);
    let (low, high) = (one.lowest(), one.highest());
    let (low, high) = (low.min(other.lowest()), high.max(other.highest()));
    let mut below = 0;
    for bucket in low..=high {
        let count = one.count(bucket) + other.count(bucket);
        if count > 0 && below + count >= rank {
            let (start, end) = (lower_bound(bucket), lower_bound(bucket + 1));
            if count > total / 4 {
                return Some(end);
            }
            let part = u128::from(end - start) * u128::from(rank.saturating_sub(below));
            let part = part.div_ceil(u128::from(count));
            return Some(start.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)));
        }
        below += count;
    }
    // Somebody has cleared one of them meanwhile.
    None
}

/// `above` billionths of `total`, rounded down.
fn share(total: u64, above: u64) -> u64 {
    let share = u128::from(total) * u128::from(above.min(WHOLE)) / u128::from(WHOLE);
    u64::try_from(share).unwrap_or(total)
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

/// The least time, in microseconds, that falls into `bucket`.
fn lower_bound(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    match bucket / FINE {
        0 => bucket,
        octave => (FINE + bucket % FINE) << (octave - 1),
    }
}

#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
