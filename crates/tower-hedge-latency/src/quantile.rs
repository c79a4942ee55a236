//! The time that a set share of calls exceeds, read from what was seen of them.

use crate::histogram::{Histogram, lower_bound};

/// One billion.
const WHOLE: u64 = 1_000_000_000;
/// One call, in the fixed-point numbers that calls are weighed with.
const ONE: u128 = 1 << 32;

/// What was seen of some calls.
#[derive(Debug)]
pub(crate) struct Sample {
    /// How long first attempts took.
    pub(crate) answered: Histogram,
    /// How long first attempts were out that were cut off: they would have taken longer.
    pub(crate) cut_off: Histogram,
}

impl Sample {
    pub(crate) fn new() -> Self {
        Self {
            answered: Histogram::new(),
            cut_off: Histogram::new(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.answered.total() + self.cut_off.total()
    }

    pub(crate) fn clear(&self) {
        self.answered.clear();
        self.cut_off.clear();
    }

    fn lowest(&self) -> usize {
        self.answered.lowest().min(self.cut_off.lowest())
    }

    fn highest(&self) -> usize {
        self.answered.highest().max(self.cut_off.highest())
    }
}

/// The time that `above` billionths of the calls in two samples exceed, in microseconds; `None` if
/// there are fewer than `least` calls.
///
/// A call that was cut off counts as all the calls together that took longer than it was out: its
/// weight is shared out among them (Kaplan and Meier's estimate of 1958, as Efron wrote it in 1967). That
/// is without bias where the time of the cut has nothing to do with how long the attempt would have
/// taken, as it is with a hedge's answer. Where nothing took longer, the answer is that time itself.
///
/// Interpolated inside its bucket, so at most one bucket off. A bucket that holds more than a
/// quarter of everything is taken whole: times that are all nearly the same lie anywhere in it, and
/// a value below them would make nearly all of them late.
pub(crate) fn quantile(of: [&Sample; 2], above: u64, least: u64) -> Option<u64> {
    let [one, other] = of;
    let total = one.total() + other.total();
    if total == 0 || total < least {
        return None;
    }
    let rank = u128::from(total - share(total, above)) * ONE;
    let (mut below, mut left, mut weight) = (0, total, ONE);
    let mut last = 0;
    for bucket in one.lowest().min(other.lowest())..=one.highest().max(other.highest()) {
        let answered = one.answered.count(bucket) + other.answered.count(bucket);
        let cut_off = one.cut_off.count(bucket) + other.cut_off.count(bucket);
        if answered + cut_off > 0 {
            last = bucket;
        }
        let weighed = u128::from(answered) * weight;
        if answered > 0 && below + weighed >= rank {
            let (start, end) = (lower_bound(bucket), lower_bound(bucket + 1));
            if weighed > u128::from(total) * ONE / 4 {
                return Some(end);
            }
            let part = u128::from(end - start) * rank.saturating_sub(below);
            let part = part.div_ceil(weighed);
            return Some(start.saturating_add(u64::try_from(part).unwrap_or(u64::MAX)));
        }
        below += weighed;
        // Somebody may be adding meanwhile.
        left = left.saturating_sub(answered);
        let longer = left.saturating_sub(cut_off);
        if cut_off > 0 && longer > 0 {
            // Rounded up, so that the last of them brings no less than all.
            weight = (weight * u128::from(left)).div_ceil(u128::from(longer));
        }
        left = longer;
    }
    // `None`: somebody has cleared one of them meanwhile.
    (left == 0).then(|| lower_bound(last + 1))
}

/// `above` billionths of `total`, rounded down.
fn share(total: u64, above: u64) -> u64 {
    let share = u128::from(total) * u128::from(above.min(WHOLE)) / u128::from(WHOLE);
    u64::try_from(share).unwrap_or(total)
}

#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
