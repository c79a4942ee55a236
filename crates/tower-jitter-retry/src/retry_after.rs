//! What a server's demand to wait makes of the backoff.

use std::time::Duration;

use crate::jitter;

/// The most that is added to a hint.
const MAX_JITTER: Duration = Duration::from_secs(1);

/// The delay where the backoff says `backoff` and the server says `hint`.
///
/// The hint is a floor. Up to a tenth of it, at most a second, is added by chance: all clients that
/// a server turned away together were told the same.
pub(crate) fn delay(backoff: Duration, hint: Duration, random: u64) -> Duration {
    let jitter = jitter::share((hint / 10).min(MAX_JITTER), random);
    backoff.max(hint.saturating_add(jitter))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hint_is_a_floor_with_a_tenth_above_it() {
        let secs = Duration::from_secs_f64;
        for (backoff, hint, random, expected) in [
            (0.1, 2.0, 0, 2.0),
            (0.1, 2.0, u64::MAX, 2.2),
            (0.1, 60.0, u64::MAX, 61.0),
            (5.0, 2.0, u64::MAX, 5.0),
            (0.1, 0.0, u64::MAX, 0.1),
        ] {
            assert_eq!(delay(secs(backoff), secs(hint), random), secs(expected));
        }
        assert_eq!(delay(secs(1.0), Duration::MAX, u64::MAX), Duration::MAX);
    }
}
