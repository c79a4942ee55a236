//! The time that a set share of calls exceeds, read from what was seen of them.

use crate::histogram::{Histogram, lower_bound};

/// One billion.
const WHOLE: u64 = 1_000_000_000;
/// One call, in the fixed-point numbers that calls are weighed with.
const ONE: u128 = 1 << 32;
/// What so few calls have shown is chance: a hundredth of those that are to exceed the time, and ten.
const FEW: u64 = 10;

/// What was seen of some calls.
#[derive(Debug)]
pub(crate) struct Sample {
    /// How long first attempts took.
    pub(crate) ended: Histogram,
    /// How long first attempts were out that a hedge has overtaken: they would have taken longer.
    pub(crate) cut_off: Histogram,
}

impl Sample {
    pub(crate) fn new() -> Self {
        Self {
            ended: Histogram::new(),
            cut_off: Histogram::new(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.ended.total() + self.cut_off.total()
    }

    pub(crate) fn clear(&self) {
        self.ended.clear();
        self.cut_off.clear();
    }

    fn lowest(&self) -> usize {
        self.ended.lowest().min(self.cut_off.lowest())
    }

    fn highest(&self) -> usize {
        self.ended.highest().max(self.cut_off.highest())
    }
}

/// The time that `above` billionths of the calls in two samples exceed, in microseconds; `None` if
/// there are fewer than `least` calls.
///
/// A call that was cut off counts as all the calls together that took longer than it was out: its
/// weight is shared out among them (Kaplan and Meier's estimate of 1958, as Efron wrote it in 1967). That
/// is without bias as far as the time of a hedge's answer has nothing to do with what the first attempt would
/// have taken, and up to the trigger, before which nothing is cut off, in any case. Where too few took
/// longer, as with attempts that never end, it counts as if it had ended when it was cut off: too short, but
/// on the right side of the trigger of that time, so that the threshold rises until no more are late than
/// should be, and not at once to what a few have shown. The bucket is then taken whole: inside it, the
/// threshold would never get past the cuts of hedges that answer at once.
///
/// Otherwise interpolated inside its bucket, so at most one bucket off. A bucket that holds more than a
/// quarter of everything is taken whole: times that are all nearly the same lie anywhere in it, and
/// a value below them would make nearly all of them late.
pub(crate) fn quantile(of: [&Sample; 2], above: u64, least: u64) -> Option<u64> {
    let [one, other] = of;
    let total = one.total() + other.total();
    if total == 0 || total < least {
        return None;
    }
    let beyond = share(total, above);
    let rank = u128::from(total - beyond) * ONE;
    let few = FEW.max(beyond / 100);
    let buckets = || {
        let (low, high) = (one.lowest(), one.highest());
        (low.min(other.lowest())..=high.max(other.highest())).map(|bucket| {
            let ended = one.ended.count(bucket) + other.ended.count(bucket);
            let cut_off = one.cut_off.count(bucket) + other.cut_off.count(bucket);
            (bucket, ended, cut_off)
        })
    };
    let longer = reach(buckets(), total, rank, few);
    longer.or_else(|| {
        let mut seen = 0;
        let mut buckets = buckets();
        let reached = buckets.find(|(_, ended, cut_off)| {
            seen += ended + cut_off;
            seen > 0 && seen >= total - beyond
        });
        reached.map(|(bucket, ..)| lower_bound(bucket + 1))
    })
}

/// Where so many calls have ended, given how many have ended and were cut off in each bucket. `None` if no more
/// than a few show it, or somebody has taken them out meanwhile.
fn reach(
    buckets: impl Iterator<Item = (usize, u64, u64)>,
    total: u64,
    rank: u128,
    few: u64,
) -> Option<u64> {
    let (mut below, mut left, mut weight) = (0, total, ONE);
    for (bucket, ended, cut_off) in buckets {
        let weighed = u128::from(ended) * weight;
        if ended > 0 && below + weighed >= rank {
            if weight > ONE && left < few {
                return None;
            }
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
        left = left.saturating_sub(ended);
        let longer = left.saturating_sub(cut_off);
        if cut_off > 0 && longer > 0 {
            // Rounded up, so that the last of them brings no less than all.
            weight = (weight * u128::from(left)).div_ceil(u128::from(longer));
        }
        left = longer;
    }
    None
}

/// `above` billionths of `total`, rounded down.
fn share(total: u64, above: u64) -> u64 {
    let share = u128::from(total) * u128::from(above.min(WHOLE)) / u128::from(WHOLE);
    u64::try_from(share).unwrap_or(total)
}

#[cfg(all(test, not(tower_hedge_latency_loom)))]
mod tests;
