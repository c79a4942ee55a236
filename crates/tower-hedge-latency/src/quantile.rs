//! Computes a quantile of latency from samples.

use crate::histogram::{Histogram, lower_bound};

/// One billion.
const WHOLE: u64 = 1_000_000_000;
/// The weight of one call, as a fixed-point number.
const ONE: u128 = 1 << 32;
/// If hedges cut off calls below an estimated latency, the estimate needs at least this number of calls that were still
/// in flight at that latency. If more than 1,000 calls are beyond the quantile, it needs a hundredth of them instead.
const FEW: u64 = 10;

/// The observed latencies of some calls.
#[derive(Debug, Default)]
pub(crate) struct Sample {
    /// Latencies of first attempts that succeeded. Also the time in flight of first attempts that failed late or were
    /// dropped late: see `Race::observation`.
    pub(crate) ended: Histogram,
    /// The time in flight of first attempts when a hedge overtook them. Their latencies would have been longer.
    pub(crate) cut_off: Histogram,
}

impl Sample {
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

/// Returns the latency in microseconds that `above` billionths of the calls in two samples exceed, or `None` if there
/// are fewer than `least` calls.
///
/// If a hedge cut a call off, the call's latency is only known to be above the cut. The call's weight is shared among
/// all calls that took longer than the cut (the estimate of Kaplan and Meier, 1958, in Efron's form of 1967). With many
/// calls, the estimate is nearly unbiased if the latencies of hedges and first attempts are independent. Hedges do not
/// change the estimate below the shortest hedge delay of these calls, because no call is cut off there.
///
/// If too few calls outlasted the cuts below the quantile, for example because attempts never end, each cut-off call
/// counts as if it had ended at its cut. No cut is shorter than the hedge delay of its call. So without a `max_delay`,
/// the threshold rises until the right share of calls is late. It does not jump to the latency of a few calls. The
/// result is then the upper end of its bucket: hedges that answer immediately cut calls off just above the threshold,
/// so a result inside the bucket could never rise above these cuts.
///
/// Otherwise the result is interpolated inside its bucket, so rounding adds an error of at most one bucket. If that
/// bucket holds more than a quarter of the weight of all calls, the result is its upper end: nearly equal latencies may
/// lie anywhere in the bucket, and a threshold below them would make nearly all of these calls late.
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

/// Returns the latency in microseconds within which `rank` calls have ended, given the ended and the cut-off calls of
/// each bucket. `rank` is a fixed-point number; see [`ONE`].
///
/// Returns `None` if calls were cut off in lower buckets, and fewer than `few` calls reach the bucket of that latency.
/// Also returns `None` if the ended calls do not reach `rank`, usually because the longest calls were all cut off.
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
        // Saturates, because another thread may be adding samples.
        left = left.saturating_sub(ended);
        let longer = left.saturating_sub(cut_off);
        if cut_off > 0 && longer > 0 {
            // Rounded up. Otherwise, if the quantile is the longest latency, `below` could stay slightly under `rank`,
            // and the result would be `None`.
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
