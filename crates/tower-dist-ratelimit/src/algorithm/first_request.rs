use std::time::Duration;

use super::{
    Arithmetic, MAX_COUNT, Now, Take, Words, clamp, fixed_window::decide_count, saturating_nanos,
};
use crate::{BuildError, Decision, Quota};

/// A fixed window that begins when tokens are taken under a key that has no used tokens. The tokens of the window stay
/// used until the window ends, or until they are refunded.
///
/// The words are the end of the window in nanoseconds, and the count, which is above 0.
///
/// A request's own quota changes only the limit; the window keeps its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FirstRequest {
    limit: u64,
    /// Length of the window, in nanoseconds.
    window: u64,
}

impl FirstRequest {
    /// # Errors
    ///
    /// An invalid quota, or a limit above 2⁶¹.
    pub(crate) fn new(quota: Quota) -> Result<Self, BuildError> {
        quota.check()?;
        quota.check_limit(MAX_COUNT)?;
        Ok(Self {
            limit: quota.limit(),
            window: saturating_nanos(quota.window()),
        })
    }

    /// Returns the end and the count of the window. If no window is open, returns those of an unused window that begins
    /// now.
    fn read(&self, words: &[u64], now: u64) -> (u64, u64) {
        match *words {
            [end, count] if end > now => (end, count),
            _ => (now + self.window, 0),
        }
    }
}

impl Arithmetic for FirstRequest {
    fn decide(&self, words: &[u64], now: Now, take: &Take<'_>) -> Decision {
        let now = clamp(now.nanos);
        let (end, count) = self.read(words, now);
        let limit = take.limit(self.limit, MAX_COUNT);
        decide_count(limit, count, Duration::from_nanos(end - now), take)
    }

    fn take(&self, words: &mut Words, now: Now, _: &Take<'_>, tokens: u64) {
        let (end, count) = self.read(words, clamp(now.nanos));
        *words = Words::from([end, count + tokens]);
    }

    fn settle(&self, words: &mut Words, now: Now, _: &Take<'_>, delta: i64) -> bool {
        let (end, count) = self.read(words, clamp(now.nanos));
        let settled = count.saturating_add_signed(delta).min(MAX_COUNT);
        match settled {
            _ if settled == count => {}
            0 => words.clear(),
            _ => *words = Words::from([end, settled]),
        }
        settled != count
    }

    fn pressure(&self, words: &[u64], now: Now) -> u64 {
        self.read(words, clamp(now.nanos)).1
    }

    fn decode(&self, words: Words) -> Option<Words> {
        matches!(*words, [] | [_, 1..=MAX_COUNT]).then_some(words)
    }
}
