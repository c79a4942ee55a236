use std::time::Duration;

use tower_dist_ratelimit::{Algorithm, Decision, Quota};

/// The time at which a key is charged in Rust, in microseconds. It is the server's time until that jumps back.
///
/// After a jump to a time before the last write of a key, the scripts treat the key as written now. With fixed and
/// sliding windows, they treat it as written in the window after the present one, if it was written later than that. For
/// the algorithms in Rust, the server's time then is a later time.
pub(super) struct Clock {
    algorithm: Algorithm,
    window: u64,
    /// The offset of the windows.
    phase: u64,
    ahead: u64,
    written: Option<u64>,
}

impl Clock {
    /// The clock of a key whose hash begins with these bits.
    pub(super) fn new(algorithm: Algorithm, quota: Quota, bits: u64) -> Self {
        let window = micros(quota.window());
        let (window, phase) = match algorithm {
            Algorithm::FixedWindow { staggered: true } => (window, window / 65_536 * (bits >> 48)),
            Algorithm::SlidingWindowBuckets { count }
            | Algorithm::SlidingWindowStrict { count } => (window.div_ceil(u64::from(count)), 0),
            _ => (window, 0),
        };
        Self {
            algorithm,
            window,
            phase,
            ahead: 0,
            written: None,
        }
    }

    /// Returns the time at which the server's clock shows `now`.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        let time = now + self.ahead;
        let back = self.written.map_or(0, |written| match self.algorithm {
            Algorithm::FixedWindow { .. }
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowBuckets { .. }
            | Algorithm::SlidingWindowStrict { .. } => {
                let number = |time| (time + self.phase) / self.window;
                number(written).saturating_sub(number(time) + 1) * self.window
            }
            _ => written.saturating_sub(time),
        });
        self.ahead += back;
        time + back
    }

    /// Records that the key was charged.
    pub(super) fn wrote(&mut self, time: u64, decision: &Decision) {
        self.written = Some(match self.algorithm {
            // The beginning of the window decides.
            Algorithm::FixedWindowFromFirstRequest => {
                time + micros(decision.reset_after) - self.window
            }
            // Before the newest window begins, charges count in it.
            _ => self.written.unwrap_or(0).max(time),
        });
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
