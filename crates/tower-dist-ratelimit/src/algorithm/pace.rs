use std::time::Duration;

use super::{clamp, ratio::Ratio, saturating_nanos};
use crate::{BuildError, Quota, build_error::ensure, quota::HORIZON};

/// Maximum number of units in a burst or a debt. The clock is at most 2⁶³ units, so the clock plus both stays below
/// 2⁶⁴.
pub(super) const MAX_AHEAD: u64 = 1 << 61;

/// A clock that counts tokens.
///
/// Time is counted in *units*: one token is 2^k units, and the clock gains `limit * 2^k / window` units per nanosecond.
/// Each reading is rounded down once, so rounding errors do not add up. k is the largest integer with which 100 years
/// are at most 2⁶³ units and the burst at most 2⁶¹ units. So a unit is shorter than a nanosecond, unless the burst
/// takes decades to return. An emission interval that is rounded up to whole nanoseconds would instead lose 0.4
/// requests an hour at 333 per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Pace {
    /// k: one token is `1 << token_bits` units.
    pub(super) token_bits: u32,
    units_per_nano: Ratio,
    nanos_per_unit: Ratio,
}

/// An instant: the clock's nanoseconds, and the units that a pace gains from the clock's zero until then.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    pub(super) nanos: u64,
    pub(super) units: u64,
}

impl Pace {
    /// The pace of a quota's tokens.
    ///
    /// # Errors
    ///
    /// An invalid quota, or a limit or burst that is too large to count exactly.
    pub(super) fn new(quota: Quota) -> Result<Self, BuildError> {
        quota.check()?;
        let window = saturating_nanos(quota.window());
        let most = largest_limit(window);
        let (limit, burst, time) = (quota.limit(), quota.burst_size(), quota.window());
        ensure!(limit <= most, "limit" is limit, "at most {most} in a window of {time:?}");
        ensure!(burst <= MAX_AHEAD, "burst" is burst, "at most {MAX_AHEAD}");
        Ok(Self::of(quota.limit(), window, burst))
    }

    /// The pace of the nearest quota that can be counted. A quota of zero becomes one token in 100 years.
    pub(super) fn nearest(quota: Quota) -> Self {
        let longest = saturating_nanos(HORIZON);
        if quota.is_zero() {
            return Self::of(1, longest, 1);
        }
        let window = saturating_nanos(quota.window()).clamp(1, longest);
        let most = largest_limit(window);
        let burst = quota.burst_size().clamp(1, MAX_AHEAD);
        Self::of(quota.limit().min(most), window, burst)
    }

    /// Computes the pace of a quota whose limit, window and burst are within their bounds. `window` is in nanoseconds.
    fn of(limit: u64, window: u64, burst: u64) -> Self {
        let room = |most: u128, value: u64| (most / u128::from(value)).ilog2();
        // The largest k at which `limit << k` and `burst << k` stay within their bounds.
        let token_bits = room(most_per_window(window), limit).min(room(MAX_AHEAD.into(), burst));
        let units_per_window = limit << token_bits;
        Self {
            token_bits,
            units_per_nano: Ratio::new(units_per_window, window),
            nanos_per_unit: Ratio::new(window, units_per_window),
        }
    }

    #[inline]
    pub(super) fn at(&self, nanos: u64) -> Moment {
        let nanos = clamp(nanos);
        Moment {
            nanos,
            units: self.units_per_nano.floor(nanos),
        }
    }

    pub(super) fn units(&self, tokens: u64) -> u64 {
        tokens << self.token_bits
    }

    /// Converts units to whole tokens, rounded down.
    pub(super) fn tokens(&self, units: u64) -> u64 {
        units >> self.token_bits
    }

    /// Returns the shortest time, in whole nanoseconds, in which the clock gains at least `units` from `now`. The time
    /// may end after the horizon, but ends at `u64::MAX` at the latest.
    #[inline]
    pub(super) fn nanos(&self, now: Moment, units: u64) -> u64 {
        if units == 0 {
            return 0;
        }
        self.nanos_per_unit.ceil(now.units + units) - now.nanos
    }

    #[inline]
    pub(super) fn span(&self, now: Moment, units: u64) -> Duration {
        Duration::from_nanos(self.nanos(now, units))
    }

    /// Returns by how many units a state is ahead of the clock after a settlement of `delta` tokens. Before the
    /// settlement, the state is `ahead` units ahead. An extra charge raises that number to at most [`MAX_AHEAD`].
    pub(super) fn settled(&self, ahead: u64, delta: i64) -> u64 {
        let units = delta.unsigned_abs().saturating_mul(1 << self.token_bits);
        if delta < 0 {
            ahead.saturating_sub(units)
        } else {
            ahead.max(ahead.saturating_add(units).min(MAX_AHEAD))
        }
    }

    /// Converts units of another pace, whose tokens have `1 << token_bits` units, to units of this pace, rounded up.
    /// The result is at most [`MAX_AHEAD`].
    pub(super) fn converted(&self, units: u64, token_bits: u32) -> u64 {
        let (ours, theirs) = (self.token_bits, token_bits);
        let units = if ours >= theirs {
            u128::from(units) << (ours - theirs)
        } else {
            u128::from(units).div_ceil(1 << (theirs - ours))
        };
        u64::try_from(units).map_or(MAX_AHEAD, |units| units.min(MAX_AHEAD))
    }
}

/// Returns the maximum units per window at which the clock reaches at most 2⁶³ units at the horizon.
fn most_per_window(window: u64) -> u128 {
    (u128::from(window) << 63) / HORIZON.as_nanos()
}

fn largest_limit(window: u64) -> u64 {
    u64::try_from(most_per_window(window)).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client that changes its quota repeatedly gains nothing.
    #[test]
    fn units_of_another_pace_are_rounded_up() {
        let pace = Pace::new(Quota::per_second(1)).unwrap();
        let bits = pace.token_bits;
        assert_eq!(pace.converted(5, bits), 5);
        assert_eq!(pace.converted(5, bits - 1), 10);
        assert_eq!(pace.converted(4, bits + 1), 2);
        assert_eq!(pace.converted(5, bits + 1), 3);
        assert_eq!(pace.converted(1, bits + 9), 1);
        assert_eq!(pace.converted(u64::MAX, 0), MAX_AHEAD);
        assert_eq!(pace.converted(0, 0), 0);
    }
}
