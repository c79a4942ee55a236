use std::time::Duration;

use tower_dist_ratelimit::{BuildError, Quota, arithmetic::HORIZON};

/// The most units that a bucket or queue is used, debts included. Lua's numbers are doubles, exact up to 2⁵³; with this
/// no sum of a state and a cost passes that.
pub(super) const MOST_USED: u64 = 1 << 52;

/// The pace of a quota by a clock that counts microseconds, as exact integers: one token is `token` units, of which
/// `rate` drain in a microsecond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rate {
    pub(super) rate: u64,
    pub(super) token: u64,
    /// In units.
    pub(super) burst: u64,
}

impl Rate {
    /// # Errors
    ///
    /// A quota whose burst is too large to count exactly at this pace.
    pub(super) fn new(quota: Quota) -> Result<Self, BuildError> {
        let window = micros("window", quota.window())?;
        let common = gcd(quota.limit(), window);
        let (rate, token) = (quota.limit() / common, window / common);
        let most = MOST_USED / token;
        if quota.burst_size() > most {
            let bound = format_args!(
                "at most {most} with {} tokens per {:?} on Redis, which counts in parts of a token and exactly up to 2^52",
                quota.limit(),
                quota.window()
            );
            return Err(BuildError::new("burst", quota.burst_size(), bound));
        }
        if rate > MOST_USED {
            let bound = format_args!("at most {MOST_USED} on Redis");
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        Ok(Self {
            rate,
            token,
            burst: quota.burst_size() * token,
        })
    }

    /// The same pace in units as small as leave room for debts of 1024 bursts, and for so many microseconds: what was used is converted, and rounded,
    /// when the quota changes.
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

    /// The nearest pace to a quota's that can be counted, and not a faster one.
    pub(super) fn nearest(quota: Quota) -> Self {
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
        let (rate, token) = below(limit, window, MOST_USED / burst);
        if rate > 0 {
            return Self {
                rate,
                token,
                burst: burst * token,
            };
        }
        // So slow that a token cannot be told apart from none: slower than it should be by less than one in 2^51, with
        // as much of the burst as can be counted.
        let token = window.div_ceil(limit);
        Self {
            rate: 1,
            token,
            burst: burst.min(MOST_USED / token) * token,
        }
    }
}

/// The largest fraction up to `num / den` with a denominator up to `most`, reduced. By descent in the Stern-Brocot tree,
/// as many steps at once as go in one direction.
fn below(num: u64, den: u64, most: u64) -> (u64, u64) {
    let (num, den, most) = (u128::from(num), u128::from(den), u128::from(most.max(1)));
    // The whole part, and 1/1 above it.
    let whole = num / den;
    let (mut low, mut high) = ((whole, 1), (whole + 1, 1));
    loop {
        // How far up can the lower bound go towards the upper one without passing the fraction or the denominator?
        let below_by = num * low.1 - low.0 * den;
        let above_by = high.0 * den - num * high.1;
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

/// At most `u64::MAX`.
fn narrow(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// A setting in whole microseconds.
///
/// # Errors
///
/// One that is not: the server's clock has no finer ones.
pub(super) fn micros(field: &'static str, value: Duration) -> Result<u64, BuildError> {
    if value.subsec_nanos().is_multiple_of(1000) {
        return Ok(as_micros(value));
    }
    let bound = "whole microseconds on Redis, whose clock counts those";
    Err(BuildError::new(field, format_args!("{value:?}"), bound))
}

/// Rounded down.
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

    /// As the docs of the backend state it.
    #[test]
    fn a_burst_is_at_most_so_many_parts_of_a_token() {
        // 7 in 60,000,000 µs have nothing in common, 5,000 in 1,000,000 µs have 5,000.
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
    fn of_a_burst_of_long_tokens_there_is_as_much_as_can_be_counted() {
        let quota = Quota::new(1, Duration::from_millis(781_027)).burst(5_766_254);
        let near = Rate::nearest(quota);
        assert_eq!((near.rate, near.token), (1, 781_027_000));
        assert_eq!(near.burst, 5_766_253 * 781_027_000);
    }

    #[test]
    fn what_doubles_cannot_count_is_not_built() {
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
        ) {
            let quota = Quota::new(limit, Duration::from_millis(window)).burst(burst);
            let near = Rate::nearest(quota);
            if let Ok(exact) = Rate::new(quota) {
                prop_assert_eq!(near, exact);
            }
            prop_assert!(near.burst <= MOST_USED && near.rate > 0 && near.token > 0);
            // All of the burst; or, where a single token is so long, as much as can be counted.
            prop_assert_eq!(near.burst, burst.min(MOST_USED / near.token) * near.token);
            let window = u128::from(window) * 1000;
            let ours = u128::from(near.rate) * window;
            let theirs = u128::from(limit) * u128::from(near.token);
            prop_assert!(ours <= theirs);
            prop_assert!((theirs - ours) * 1_000_000 <= theirs, "{near:?}");
        }

        #[test]
        fn no_quota_has_no_nearest_pace(limit in any::<u64>(), window in any::<u64>(), burst in any::<u64>()) {
            let near = Rate::nearest(Quota::new(limit, Duration::from_nanos(window)).burst(burst));
            prop_assert!(near.rate > 0 && near.token > 0 && near.rate <= MOST_USED);
            prop_assert!(near.token <= MOST_USED && near.burst <= MOST_USED);
        }
    }
}
