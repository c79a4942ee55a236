use std::time::Duration;

use tower_dist_ratelimit::{BuildError, Quota, arithmetic::HORIZON};

/// Maximum number of used units of a bucket or queue, debts included. Lua's numbers are doubles, which are exact up to
/// 2⁵³. So the sum of a state and a cost of at most the burst is exact.
pub(super) const MOST_USED: u64 = 1 << 52;

/// The rate of a quota in exact integers. One token is `token` units, and `rate` units drain in a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) rate: u64,
    pub(super) token: u64,
    /// In units.
    pub(super) burst: u64,
}

impl Rate {
    /// Returns the exact rate of a quota.
    ///
    /// # Errors
    ///
    /// A window that is not whole microseconds, and a burst or limit that is too large to count exactly.
    pub(super) fn new(quota: Quota) -> Result<Self, BuildError> {
        let window = micros("window", quota.window())?;
        let common = gcd(quota.limit(), window);
        let (rate, token) = (quota.limit() / common, window / common);
        let most = MOST_USED / token;
        if quota.burst_size() > most {
            let bound = format!(
                "at most {most} with {} tokens per {:?} on Redis, which counts in parts of a token and exactly up to 2^52",
                quota.limit(),
                quota.window()
            );
            return Err(BuildError::new("burst", quota.burst_size(), bound));
        }
        if rate > MOST_USED {
            let bound = format!("at most {MOST_USED} on Redis");
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        Ok(Self {
            rate,
            token,
            burst: quota.burst_size() * token,
        })
    }

    /// Returns the same rate in smaller units. The units are halved as long as [`MOST_USED`] stays at least 1,024 times
    /// the largest of these: the burst, a token, and the units that drain in `micros` microseconds. If `micros` is 0,
    /// it counts as 1. A quota that is too large for this keeps its units.
    ///
    /// If a change of the quota converts the used units, it rounds them. Rounding loses less in small units.
    pub(super) fn finer(self, micros: u64) -> Self {
        let span = self.rate.saturating_mul(micros.max(1));
        let room = (MOST_USED >> 10) / self.burst.max(self.token).max(span);
        let bits = room.checked_ilog2().unwrap_or(0);
        Self {
            rate: self.rate << bits,
            token: self.token << bits,
            burst: self.burst << bits,
        }
    }

    /// Returns a rate that can be counted exactly. If the quota is valid and not zero, the rate is not faster than the
    /// quota's. A quota of zero gets a burst of zero.
    ///
    /// An allowed request fills a leaky queue at most to the burst plus the units that drain in `max_wait`
    /// microseconds. The returned rate keeps this sum at or below [`MOST_USED`].
    pub(super) fn nearest(quota: Quota, max_wait: u64) -> Self {
        let longest = as_micros(HORIZON);
        if quota.is_zero() {
            return Self {
                rate: 1,
                token: longest,
                burst: 0,
            };
        }
        let window = narrow(quota.window().as_nanos().div_ceil(1000));
        let window = window.clamp(1, longest);
        let burst = quota.burst_size().clamp(1, MOST_USED);
        let limit = quota.limit().min(MOST_USED);
        // The largest token, in units, with which the burst and the wait can be counted.
        let [most, burst_wide, limit_wide, window_wide, wait] =
            [MOST_USED, burst, limit, window, max_wait].map(u128::from);
        let most = most * window_wide / (burst_wide * window_wide + limit_wide * wait);
        let (rate, token) = match below(limit, window, narrow(most)) {
            // At one unit per microsecond, a token of `most` units drains in `most` microseconds. Even this rate is
            // faster than the quota, so the token is larger than `most`. Rounding it up makes the rate slower by less
            // than one part in `token`.
            (0, _) => (1, window.div_ceil(limit)),
            // Even with tokens of one unit, the burst and the wait exceed `MOST_USED` units. So the rate is cut until
            // the wait takes at most half of `MOST_USED`, or the rate is 1.
            (rate, token) if most == 0 => (rate.min(MOST_USED / 2 / max_wait).max(1), token),
            exact => exact,
        };
        // The burst is cut to the part that can be counted.
        let room = MOST_USED - rate * max_wait;
        Self {
            rate,
            token,
            burst: burst.min(room / token) * token,
        }
    }
}

/// Returns the largest fraction up to `num / den` whose denominator is at most `most`, in lowest terms. A `most` of 0
/// counts as 1. The search descends the Stern-Brocot tree, and takes all consecutive steps in one direction together.
fn below(num: u64, den: u64, most: u64) -> (u64, u64) {
    let (num, den, most) = (u128::from(num), u128::from(den), u128::from(most.max(1)));
    // The search begins between the integer part and the next integer.
    let whole = num / den;
    let (mut low, mut high) = ((whole, 1), (whole + 1, 1));
    loop {
        let below_by = num * low.1 - low.0 * den;
        let above_by = high.0 * den - num * high.1;
        // Number of steps by which the lower bound can rise before it passes the fraction or the largest denominator.
        let up = (below_by / above_by).min((most - low.1) / high.1);
        low = (low.0 + up * high.0, low.1 + up * high.1);
        let below_by = num * low.1 - low.0 * den;
        if below_by == 0 || low.1 + high.1 > most {
            return (narrow(low.0), narrow(low.1));
        }
        let down = ((above_by - 1) / below_by).min((most - high.1) / low.1);
        if up == 0 && down == 0 {
            return (narrow(low.0), narrow(low.1));
        }
        high = (high.0 + down * low.0, high.1 + down * low.1);
    }
}

/// Converts to `u64`, at most `u64::MAX`.
fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Returns the setting `field` in microseconds.
///
/// # Errors
///
/// A fraction of a microsecond, which the server's clock cannot measure.
pub(super) fn micros(field: &'static str, value: Duration) -> Result<u64, BuildError> {
    if value.subsec_nanos().is_multiple_of(1000) {
        return Ok(as_micros(value));
    }
    let bound = "whole microseconds on Redis, whose clock counts those";
    Err(BuildError::new(field, format_args!("{value:?}"), bound))
}

/// Converts to microseconds, rounded down, at most `u64::MAX`.
pub(super) fn as_micros(value: Duration) -> u64 {
    narrow(value.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_token_is_a_whole_number_of_units_and_so_is_a_microsecond() {
        let rate = Rate::new(Quota::per_minute(7)).unwrap();
        assert_eq!(
            (rate.rate, rate.token, rate.burst),
            (7, 60_000_000, 420_000_000)
        );
        let rate = Rate::new(Quota::per_second(5_000)).unwrap();
        assert_eq!((rate.rate, rate.token), (1, 200));
    }

    /// The docs of the backend state this bound.
    #[test]
    fn a_burst_has_at_most_two_to_the_52_parts_of_a_token() {
        // The greatest common divisor of 7 and 60,000,000 is 1, and of 5,000 and 1,000,000 it is 5,000.
        for (quota, parts) in [
            (Quota::per_minute(7), 60_000_000),
            (Quota::per_second(5_000), 200),
        ] {
            let most = MOST_USED / parts;
            assert!(Rate::new(quota.burst(most)).is_ok());
            let error = Rate::new(quota.burst(most + 1)).unwrap_err();
            assert_eq!(error.field(), "burst");
        }
    }

    #[test]
    fn a_burst_of_long_tokens_is_cut_to_the_part_that_can_be_counted() {
        let quota = Quota::new(1, Duration::from_millis(781_027)).burst(5_766_254);
        let near = Rate::nearest(quota, 0);
        assert_eq!((near.rate, near.token), (1, 781_027_000));
        assert_eq!(near.burst, 5_766_253 * 781_027_000);
    }

    #[test]
    fn the_wait_of_a_leaky_queue_makes_units_larger_or_else_the_rate_and_the_burst_smaller() {
        let hour = as_micros(Duration::from_secs(3600));
        let fast = Quota::per_second(1_299_709);
        assert_eq!(Rate::nearest(fast, 0).token, 1_000_000);
        let near = Rate::nearest(fast, hour);
        assert_eq!((near.rate, near.token), (123_718, 95_189));
        assert_eq!(near.burst, 1_299_709 * near.token);
        let near = Rate::nearest(Quota::per_second(u64::MAX), hour);
        assert_eq!((near.rate, near.token), (MOST_USED / 2 / hour, 1));
        assert_eq!(near.burst, MOST_USED - near.rate * hour);
    }

    #[test]
    fn a_quota_that_doubles_cannot_count_is_rejected() {
        let error = Rate::new(Quota::per_day(999_983)).unwrap_err();
        assert_eq!(error.field(), "burst");
        let error = Rate::new(Quota::new(1, Duration::from_nanos(1_500))).unwrap_err();
        assert_eq!(error.field(), "window");
    }

    proptest! {
        #[test]
        fn the_nearest_pace_is_never_faster_and_hardly_slower(
            limit in 1..=10_000_000_u64,
            window in 1..=u64::from(u32::MAX),
            burst in 1..=10_000_000_u64,
            max_wait in prop_oneof![Just(0), 0..=3_600_000_000_u64],
        ) {
            let quota = Quota::new(limit, Duration::from_millis(window)).burst(burst);
            let near = Rate::nearest(quota, max_wait);
            let counts = |rate: Rate| rate.rate.saturating_mul(max_wait).saturating_add(rate.burst) <= MOST_USED;
            if let Ok(exact) = Rate::new(quota) && counts(exact) {
                prop_assert_eq!(near, exact);
            }
            prop_assert!(counts(near) && near.rate > 0 && near.token > 0);
            // The whole burst, or the part of it that can be counted if a token takes long.
            let room = MOST_USED - near.rate * max_wait;
            prop_assert_eq!(near.burst, burst.min(room / near.token) * near.token);
            let window = u128::from(window) * 1000;
            let ours = u128::from(near.rate) * window;
            let theirs = u128::from(limit) * u128::from(near.token);
            prop_assert!(ours <= theirs);
            prop_assert!((theirs - ours) * 1_000_000 <= theirs, "{near:?}");
        }

        #[test]
        fn every_quota_has_a_nearest_pace(
            limit in any::<u64>(),
            window in any::<u64>(),
            burst in any::<u64>(),
            max_wait in 0..=as_micros(HORIZON),
        ) {
            let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
            let near = Rate::nearest(quota, max_wait);
            prop_assert!(near.rate > 0 && near.token > 0 && near.rate <= MOST_USED);
            prop_assert!(near.token <= MOST_USED && near.burst + near.rate * max_wait <= MOST_USED);
        }
    }
}
