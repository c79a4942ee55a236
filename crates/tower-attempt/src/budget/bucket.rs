//! A token bucket in one word: the instant at which it will be full again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::AtomicU64;

/// Units per token. Fractions of a token are rounded down to whole units.
pub(super) const UNITS: u32 = 1_000_000;
/// One token in units.
const TOKEN: u64 = UNITS as u64;

/// Flag for a bucket that is known to be full, so that a deposit needs no clock.
///
/// Next to the flag, the bucket's word keeps the instant from which the bucket counts as full. Suppose that the word of
/// every full bucket were 0 instead. A withdrawal loads this 0, reads the clock, and stalls. Meanwhile other calls
/// empty the bucket, time fills it again, and a deposit sets the word to 0. The stalled withdrawal finds the same 0 as
/// before, and succeeds with its old reading of the clock. Then a token that time returned once is taken twice.
const FULL: u64 = 1 << 63;

/// A token bucket in one atomic word.
///
/// The clock `now` counts refilled units, so one tick refills one unit of the bucket. The tokens per second are not
/// rounded, so the refill does not drift. If no tokens return with time, the clock stays at 0, and the word without its
/// flag is the number of missing units.
///
/// Relaxed ordering suffices, because the word is the whole state. A withdrawal takes effect at the time that it reads
/// from the clock, and it reads the clock after it has loaded the word.
#[derive(Debug)]
pub(super) struct BudgetBucket {
    /// The instant at which the bucket will be full, and the flag `FULL`. From this instant on, the bucket is full.
    word: AtomicU64,
    /// The initial word.
    initial: u64,
    deposit: u64,
    burst: u64,
}

/// Returns the number of units that time has refilled, rounded down.
pub(super) fn units(elapsed: Duration, per_second: u32) -> u64 {
    let per_second = u64::from(per_second);
    let whole = elapsed.as_secs().saturating_mul(per_second * TOKEN);
    let part = u64::from(elapsed.subsec_nanos()) * per_second / (1_000_000_000 / TOKEN);
    whole.saturating_add(part)
}

/// The word of a bucket that will be full at `full_at`. Sets `FULL` if `full_at` is not after `now`.
fn word(full_at: u64, now: u64) -> u64 {
    if full_at <= now {
        full_at | FULL
    } else {
        full_at
    }
}

impl BudgetBucket {
    /// Accepts values that are out of range; `Budget::validate` reports them.
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

    /// Adds the tokens of one deposit. Reads the clock only if the bucket is not known to be full.
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

    /// Takes a token, if one remains.
    pub(super) fn withdraw(&self, now: impl Fn() -> u64) -> bool {
        let take = |current: u64| {
            let now = now();
            let after = (current & !FULL).max(now).saturating_add(TOKEN);
            // At the end of the clock's range no withdrawal succeeds.
            (after - now <= self.burst && after < FULL).then_some(after)
        };
        self.word.fetch_update(Relaxed, Relaxed, take).is_ok()
    }

    /// Gives back an unused token.
    pub(super) fn refund(&self) {
        let put = |current: u64| {
            let after = (current & !FULL).saturating_sub(TOKEN);
            Some(word(after, 0) | current & FULL)
        };
        let _ = self.word.fetch_update(Relaxed, Relaxed, put);
    }

    /// Takes one token, or all that is left if that is less. Only the bucket of a `Budget::grpc_throttle` uses this.
    /// That bucket's clock stays at 0.
    pub(super) fn record_failure(&self) {
        let take = |current: u64| Some((current & !FULL).saturating_add(TOKEN).min(self.burst));
        let _ = self.word.fetch_update(Relaxed, Relaxed, take);
    }

    /// Whether the bucket is more than half full. Only the bucket of a `Budget::grpc_throttle` uses this. That bucket's
    /// clock stays at 0.
    pub(super) fn is_above_half(&self) -> bool {
        (self.load() & !FULL) * 2 < self.burst
    }

    /// The number of whole tokens.
    pub(super) fn available(&self, now: u64) -> u32 {
        let missing = (self.load() & !FULL).saturating_sub(now);
        let tokens = self.burst.saturating_sub(missing) / TOKEN;
        u32::try_from(tokens).unwrap_or(u32::MAX)
    }

    pub(super) fn load(&self) -> u64 {
        self.word.load(Relaxed)
    }

    /// Whether the bucket is full, or has its initial word.
    pub(super) fn is_idle(&self, now: u64) -> bool {
        let current = self.load();
        current == self.initial || current & !FULL <= now
    }
}

/// Converts `ratio` tokens to units, with `units` per token. Rounds down.
///
/// The added thousandth of a unit corrects for binary fractions: as an `f64`, 1.001 · 10⁶ is 1,000,999.9999999999.
pub(super) fn share(ratio: f64, units: u32) -> u64 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "saturates, which is what values out of range should do"
    )]
    let share = (ratio * f64::from(units) + 0.001) as u64;
    share
}
