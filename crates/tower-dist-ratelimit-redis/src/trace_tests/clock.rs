use std::time::Duration;

use tower_dist_ratelimit::{Algorithm, Decision, Quota};

/// The time by which one key in Rust is charged, in microseconds: the server's, as long as that does not jump back.
///
/// After a jump to before a key was written, the scripts go on as if it had been written now, or in the present window.
/// To the algorithms in Rust that is a later time.
pub(super) struct Clock {
    algorithm: Algorithm,
    window: u64,
    /// Where windows begin.
    phase: u64,
    ahead: u64,
    written: Option<u64>,
}

impl Clock {
    /// For a key whose hash begins with these bits.
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

    /// The time when the server's clock shows `now`.
    pub(super) fn at(&mut self, now: u64) -> u64 {
        let time = now + self.ahead;
        let back = self.written.map_or(0, |written| match self.algorithm {
            Algorithm::FixedWindow { .. }
            | Algorithm::SlidingWindow
            | Algorithm::SlidingWindowBuckets { .. }
            | Algorithm::SlidingWindowStrict { .. } => {
                let number = |time| (time + self.phase) / self.window;
                number(written).saturating_sub(number(time)) * self.window
            }
            _ => written.saturating_sub(time),
        });
        self.ahead += back;
        time + back
    }

    /// The key was charged then.
    pub(super) fn wrote(&mut self, time: u64, decision: &Decision) {
        self.written = Some(match self.algorithm {
            // What counts is when its window began.
            Algorithm::FixedWindowFromFirstRequest => {
                time + micros(decision.reset_after) - self.window
            }
            _ => time,
        });
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap()
}
