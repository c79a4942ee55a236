use std::time::Duration;

/// The first pause of a store that answers in a millisecond or two, and is not worth waiting for for much longer.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause: how long decisions take to be the store's again, at most, once it is back. A thousand instances then ask a
/// dead store a thousand times in two seconds, which is what a live one answers in ten milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// Longer than a backend takes to connect again: its delays between attempts grow up to 1 s.
const CONNECT: Duration = Duration::from_secs(3);

/// How long a store that fails is left alone: twice as long after each probe, and half of that at random, so that a fleet
/// does not come back as one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    timeout: Duration,
}

impl Pauses {
    /// For answers that are waited for this long.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { timeout }
    }

    pub(super) fn timeout(self) -> Duration {
        self.timeout
    }

    /// How long processes take to return, from the first to the last one.
    pub(super) fn all_return(self) -> Duration {
        CONNECT + LONGEST.max(self.timeout.saturating_mul(2))
    }

    /// The pause after this many probes. `noise` is random.
    ///
    /// No pause is shorter than the timeout: what was asked before it began has an answer when it ends, and is not
    /// mistaken for the news.
    pub(super) fn after(self, probes: u8, noise: u64) -> Duration {
        let first = FIRST.max(self.timeout.saturating_mul(2));
        let doubled = first.saturating_mul(1 << probes.min(16));
        let half = doubled.min(LONGEST.max(first)) / 2;
        half + part(half, noise)
    }
}

/// A part of the whole, as large as the noise is of all that it can be. In nanoseconds, of which there are less than 2⁶⁴ here.
fn part(whole: Duration, noise: u64) -> Duration {
    let nanos = (whole.as_nanos() * (u128::from(noise) + 1)) >> 64;
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn pauses_double_up_to_two_seconds_and_half_of_each_is_chance() {
        let pauses = Pauses::new(ms(50));
        let shortest: Vec<_> = (0..8).map(|probes| pauses.after(probes, 0)).collect();
        let longest: Vec<_> = (0..8)
            .map(|probes| pauses.after(probes, u64::MAX))
            .collect();
        assert_eq!(shortest, [50, 100, 200, 400, 800, 1000, 1000, 1000].map(ms));
        assert_eq!(
            longest,
            [100, 200, 400, 800, 1600, 2000, 2000, 2000].map(ms)
        );
    }

    proptest! {
        #[test]
        fn no_pause_is_shorter_than_the_timeout_nor_longer_than_two_of_them_or_two_seconds(
            timeout in 1_u64..60_000,
            probes: u8,
            noise: u64,
        ) {
            let pause = Pauses::new(ms(timeout)).after(probes, noise);
            prop_assert!(pause >= ms(timeout.max(50)));
            prop_assert!(pause <= ms(2 * timeout).max(LONGEST));
        }
    }
}
