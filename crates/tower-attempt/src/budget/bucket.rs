//! The token bucket as one word: the instant at which it will be full again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::AtomicU64;

/// Units per token: what a share of a token is rounded to.
pub(super) const UNITS: u32 = 1_000_000;
/// A token as the word counts it.
const TOKEN: u64 = UNITS as u64;

/// Set once the bucket is known to be full, so that a deposit needs no clock.
///
/// The instant stays beside it. If a full bucket were 0 instead, a withdrawal that had read the
/// clock before others emptied the bucket and time filled it up again would find its 0 unchanged
/// and count as of that reading: a token that time has brought back once would be taken twice.
const FULL: u64 = 1 << 63;

/// A token bucket in one atomic word.
///
/// Time is counted in the tokens that it brings back, so that one unit of time refills one unit of
/// the bucket: no rate is rounded, and nothing drifts. Where no tokens come back with time, the
/// clock stands at 0 and the word is simply what is missing.
///
/// Relaxed ordering is enough, since the word is all the state there is. A withdrawal counts as of
/// its reading of the clock, which comes after its load of the word.
#[derive(Debug)]
pub(super) struct Bucket {
    /// When the bucket will be full again, any instant in the past being as good as another, and `FULL`.
    word: AtomicU64,
    /// The word at first.
    initial: u64,
    deposit: u64,
    burst: u64,
}

/// The time `elapsed` in units, rounded down.
pub(super) fn units(elapsed: Duration, per_second: u32) -> u64 {
    let per_second = u64::from(per_second);
    let whole = elapsed.as_secs().saturating_mul(per_second * TOKEN);
    let part = u64::from(elapsed.subsec_nanos()) * per_second / (1_000_000_000 / TOKEN);
    whole.saturating_add(part)
}

/// The word of a bucket that is full at `full_at`, as far as `now` can tell.
fn word(full_at: u64, now: u64) -> u64 {
    if full_at <= now {
        full_at | FULL
    } else {
        full_at
    }
}

impl Bucket {
    /// Values out of range are brought into it; `Budget::validate` reports them.
    pub(super) fn new(ratio: f64, burst: u32, initial: u32) -> Self {
        let missing = burst.saturating_sub(initial);
        let initial = word(u64::from(missing) * TOKEN, 0);
        Self {
            word: AtomicU64::new(initial),
            initial,
            deposit: share(ratio, UNITS),
            burst: u64::from(burst) * TOKEN,
        }
    }

    /// Gives back a share of a token. `now` is read only if the bucket is not known to be full.
    #[inline]
    pub(super) fn deposit(&self, now: impl Fn() -> u64) {
        if self.load() & FULL == 0 {
            self.deposit_missing(now);
        }
    }

    fn deposit_missing(&self, now: impl Fn() -> u64) {
        let add = |current: u64| {
            let after = current.saturating_sub(self.deposit);
            (current & FULL == 0).then(|| word(after, now()))
        };
        let _ = self.word.fetch_update(Relaxed, Relaxed, add);
    }

    /// Takes a token, if there is one.
    pub(super) fn withdraw(&self, now: impl Fn() -> u64) -> bool {
        let take = |current: u64| {
            let now = now();
            let after = (current & !FULL).max(now).saturating_add(TOKEN);
            // At the end of time there is nothing more.
            (after - now <= self.burst && after < FULL).then_some(after)
        };
        self.word.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Puts an unused token back.
    pub(super) fn refund(&self) {
        let put = |current: u64| {
            let after = (current & !FULL).saturating_sub(TOKEN);
            Some(word(after, 0) | current & FULL)
        };
        let _ = self.word.fetch_update(Relaxed, Relaxed, put);
    }

    /// Takes a token, or the rest of one. For a throttle, whose clock stands at 0.
    pub(super) fn record_failure(&self) {
        let take = |current: u64| Some((current & !FULL).saturating_add(TOKEN).min(self.burst));
        let _ = self.word.fetch_update(Relaxed, Relaxed, take);
    }

    /// Whether it is more than half full. For a throttle, whose clock stands at 0.
    pub(super) fn is_above_half(&self) -> bool {
        (self.load() & !FULL) * 2 < self.burst
    }

    /// Whole tokens.
    pub(super) fn available(&self, now: u64) -> u32 {
        let missing = (self.load() & !FULL).saturating_sub(now);
        let tokens = self.burst.saturating_sub(missing) / TOKEN;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    pub(super) fn load(&self) -> u64 {
        self.word.load(Relaxed)
    }

    /// Whether it is full, or as it was at first.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let current = self.load();
        current == self.initial || current & !FULL <= now
    }
}

/// A share of a token in `units`, rounded down.
///
/// The thousandth of a unit that is added first undoes what binary fractions lose: 0.29 · 10⁶ is
/// 289,999.99999999994.
pub(super) fn share(ratio: f64, units: u32) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is what values out of range should do"
    )]
    let share = (ratio * f64::from(units) + 0.001) as u64;
    share
}
