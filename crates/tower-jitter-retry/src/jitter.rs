use std::time::Duration;

/// The jitter strategy.
///
/// Clients that fail together and wait equally long return together. Jitter spreads them. The formulas come from the
/// AWS article *Exponential Backoff And Jitter* (2015). `c` is the capped backoff before the retry, and `r` is uniform
/// from 0 to 1. `base` is the base or step of the [`Backoff`](crate::Backoff), and `cap` is its cap. After a throttled
/// request, a longer [`throttled_base`](crate::Backoff::throttled_base) replaces an exponential backoff's base.
/// `previous` is the last delay that `Decorrelated` gave, and at least `base`. Before the first retry, and after a gRPC
/// pushback, `previous` is `base`.
///
/// | | delay | in the article's simulation |
/// |---|---|---|
/// | `None` | c | most calls, by far the longest time |
/// | `Full` | r · c | fewest calls |
/// | `Equal` | c/2 + r · c/2 | slightly more calls than `Full`, much more time |
/// | `Decorrelated` | min(cap, base + r · (3 · previous − base)) | more calls than `Full`, less time |
///
/// # Default
///
/// `Full`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Jitter {
    /// The backoff without jitter: for a single client, or if something else spreads the load.
    None,
    /// A random delay between zero and the whole backoff.
    #[default]
    Full,
    /// A random delay between half of the backoff and the whole backoff. Choose it if a very short wait would be
    /// useless.
    Equal,
    /// A random delay between the base and three times `previous` (see [`Jitter`]), at most the cap. The backoff's
    /// factor or linear growth has no effect. A [constant](crate::Backoff::constant) backoff stays constant, because
    /// its base equals its cap.
    Decorrelated,
}

/// Returns a uniformly distributed duration from zero to `whole`, rounded to the nearest nanosecond.
///
/// Multiplies `whole` by the upper 53 bits of `random`, over 2⁵³. Integers keep the precision that an `f64` would lose
/// for long durations. `whole` is cut to `u64::MAX` nanoseconds (584 years).
pub(crate) fn share(whole: Duration, random: u64) -> Duration {
    let nanos = u64::try_from(whole.as_nanos()).unwrap_or(u64::MAX);
    let share = (u128::from(nanos) * u128::from(random >> 11) + (1 << 52)) >> 53;
    // The share is at most `nanos`, so it fits.
    Duration::from_nanos(u64::try_from(share).unwrap_or(nanos))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_share_is_at_most_the_whole(nanos: u64, random: u64) {
            let whole = Duration::from_nanos(nanos);
            prop_assert!(share(whole, random) <= whole);
        }

        #[test]
        fn a_share_grows_with_the_random_value(nanos: u64, a: u64, b: u64) {
            let whole = Duration::from_nanos(nanos);
            prop_assert!(share(whole, a.min(b)) <= share(whole, a.max(b)));
        }
    }

    #[test]
    fn the_smallest_and_the_largest_random_value_give_zero_and_the_whole() {
        let second = Duration::from_secs(1);
        assert_eq!(share(second, 0), Duration::ZERO);
        assert_eq!(share(second, 1 << 63), second / 2);
        assert_eq!(share(second, u64::MAX), second);
        assert!(share(Duration::MAX, u64::MAX) <= Duration::MAX);
    }
}
