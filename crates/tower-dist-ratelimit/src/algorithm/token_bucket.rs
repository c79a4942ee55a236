use std::time::Duration;

use super::ratio::Ratio;
use crate::{BuildError, Decision, Quota, quota::HORIZON};

/// The largest bucket, and the largest debt, in units. With time below 2⁶³ units no sum here reaches 2⁶⁴.
const MAX_BUCKET: u64 = 1 << 61;

/// A token bucket kept as one number: the instant at which it is full again (GCRA).
///
/// Time is counted in *units*: one token is 2^k of them, and the clock gains exactly `limit * 2^k / window` of them per
/// nanosecond, rounded down once per reading. k is as large as 100 years in 63 bits allow, which makes a unit shorter
/// than a nanosecond unless the bucket is huge. So the count never runs ahead of the exact one, is less than one request
/// behind it however long it runs, and has no drift: an emission interval rounded to whole nanoseconds would lose 0.4
/// requests an hour at 333 a second. Over an interval that starts at any other instant, rounding can let a request in
/// less than one unit early.
///
/// A bucket whose instant has passed is full: 0 stands for one that nobody has used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TokenBucket {
    limit: u64,
    /// In units.
    burst: u64,
    /// k: one token is `1 << token_bits` units.
    token_bits: u32,
    units_per_nano: Ratio,
    nanos_per_unit: Ratio,
    /// In nanoseconds.
    horizon: u64,
}

/// An instant as one bucket sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    nanos: u64,
    units: u64,
}

impl Moment {
    /// A bucket that is full at a time up to this is full at this moment.
    pub(crate) fn units(self) -> u64 {
        self.units
    }
}

impl TokenBucket {
    pub(crate) fn new(quota: Quota) -> Result<Self, BuildError> {
        quota.check()?;
        let window = saturating_nanos(quota.window());
        // So that `limit * 2^k / window` units a nanosecond stay below 2⁶³ for as long as the horizon.
        let most_per_window = (u128::from(window) << 63) / HORIZON.as_nanos();
        if u128::from(quota.limit()) > most_per_window {
            let bound = format_args!(
                "at most {most_per_window} in a window of {:?}",
                quota.window()
            );
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        if quota.burst_size() > MAX_BUCKET {
            return Err(BuildError::new(
                "burst",
                quota.burst_size(),
                format_args!("at most {MAX_BUCKET}"),
            ));
        }
        let fits = |bits: u32| {
            u128::from(quota.limit()) << bits <= most_per_window
                && u128::from(quota.burst_size()) << bits <= u128::from(MAX_BUCKET)
        };
        let token_bits = (0..=61).rev().find(|&bits| fits(bits)).unwrap_or(0);
        let units_per_window = quota.limit() << token_bits;
        Ok(Self {
            limit: quota.limit(),
            burst: quota.burst_size() << token_bits,
            token_bits,
            units_per_nano: Ratio::new(units_per_window, window),
            nanos_per_unit: Ratio::new(window, units_per_window),
            horizon: saturating_nanos(HORIZON),
        })
    }

    /// The moment that is `nanos` after the limiter's creation. After 100 years time stands still.
    pub(crate) fn at(&self, nanos: u64) -> Moment {
        let nanos = nanos.min(self.horizon);
        Moment {
            nanos,
            units: self.units_per_nano.floor(nanos),
        }
    }

    /// Decides on `cost` tokens from a bucket that is full at `full_at`. The decision goes to `out`: handing it up by
    /// value costs more than making it.
    ///
    /// Returns the bucket's new state, or nothing when there is nothing to write: on a refusal and at zero cost.
    pub(crate) fn charge(
        &self,
        full_at: u64,
        now: Moment,
        cost: u64,
        out: &mut Decision,
    ) -> Option<u64> {
        let used = full_at.saturating_sub(now.units);
        let free = self.burst.saturating_sub(used);
        let units = self.units(cost);
        if let Some(units) = units
            && (units <= free || units == 0)
        {
            let used = used + units;
            let left = free.saturating_sub(units) >> self.token_bits;
            *out = Decision::allow(self.limit, left, self.span(now, used));
            return (units > 0).then_some(now.units + used);
        }
        let retry_after = units.map(|units| self.span(now, used + units - self.burst));
        let left = free >> self.token_bits;
        *out = Decision::refuse(self.limit, left, retry_after, self.span(now, used));
        None
    }

    /// Takes `delta` more tokens out of the bucket, also when it has too few (what is missing is a debt, of at most
    /// the largest bucket), or puts them back when it is negative. Nothing when nothing changes.
    pub(crate) fn settle(&self, full_at: u64, now: Moment, delta: i64) -> Option<u64> {
        let units = delta.unsigned_abs().saturating_mul(1 << self.token_bits);
        let used = full_at.saturating_sub(now.units);
        let settled = if delta < 0 {
            used.saturating_sub(units)
        } else {
            used.max(used.saturating_add(units).min(MAX_BUCKET))
        };
        (settled != used).then_some(now.units + settled)
    }

    /// The units of a cost; none if not even a full bucket has as many.
    fn units(&self, cost: u64) -> Option<u64> {
        (cost <= self.burst >> self.token_bits).then(|| cost << self.token_bits)
    }

    /// The shortest time after which the clock stands at least `units` later than `now`, to the nanosecond.
    fn span(&self, now: Moment, units: u64) -> Duration {
        if units == 0 {
            return Duration::ZERO;
        }
        Duration::from_nanos(self.nanos_per_unit.ceil(now.units + units) - now.nanos)
    }
}

/// In nanoseconds, at most `u64::MAX` of them, which are 584 years.
pub(crate) fn saturating_nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
