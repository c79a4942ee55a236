//! The delay before a retry if the server or a layer below names a wait.

use std::time::Duration;

use crate::jitter;

/// Maximum jitter on top of a hint.
const MAX_JITTER: Duration = Duration::from_secs(1);

/// Returns the longer of two delays: `backoff`, and `hint` with jitter.
///
/// The jitter is at most a tenth of the hint, and at most a second. The server may have sent the same hint to many
/// clients, which would otherwise return together.
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
