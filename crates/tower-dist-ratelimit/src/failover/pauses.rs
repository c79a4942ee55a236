use std::time::Duration;

/// The first pause, before jitter, unless twice the backend timeout is longer. A healthy backend usually answers in one
/// or two milliseconds.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause, unless the first one is longer. A backend that recovers is usually probed within this time. In
/// that time, a thousand instances send at most about two thousand probes, which a healthy backend answers within
/// milliseconds.
const LONGEST: Duration = Duration::from_secs(2);

/// The assumed maximum time in which a backend reconnects to a server that works again. The delays of the toolkit's
/// `Reconnect` grow to at most 1 s.
const CONNECT: Duration = Duration::from_secs(3);

/// The pauses between probes of a failing backend. On average, each pause is twice as long as the previous one, up to a
/// maximum. Up to half of each pause is random, so that the probes of a fleet spread out.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pauses {
    /// The timeout of the backend.
    pub(super) timeout: Duration,
}

impl Pauses {
    /// After an outage, the processes of a fleet return to the backend at different times. Returns the assumed maximum
    /// time between the first return and the last one.
    pub(super) fn return_spread(self) -> Duration {
        CONNECT + LONGEST.max(self.timeout.saturating_mul(2))
    }

    /// Returns the pause after this many probes. `noise` is random.
    ///
    /// No pause is shorter than the timeout. So a request that was sent before the pause normally has an outcome before
    /// the next probe.
    pub(super) fn after(self, probes: u8, noise: u64) -> Duration {
        let first = FIRST.max(self.timeout.saturating_mul(2));
        let doubled = first.saturating_mul(1 << probes.min(16));
        let half = doubled.min(LONGEST.max(first)) / 2;
        half + part(half, noise)
    }
}

/// Returns a part of `whole` in proportion to `noise`: all of it for `u64::MAX`. The nanoseconds fit into a `u64` here.
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
    fn pauses_double_up_to_two_seconds_and_half_of_each_is_random() {
        let pauses = Pauses { timeout: ms(50) };
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
            let pause = Pauses { timeout: ms(timeout) }.after(probes, noise);
            prop_assert!(pause >= ms(timeout.max(50)));
            prop_assert!(pause <= ms(2 * timeout).max(LONGEST));
        }
    }
}
