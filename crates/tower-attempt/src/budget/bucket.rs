//! The token bucket as one word: the instant at which it will be full again.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::AtomicU64;

/// Units per token: what a share of a token is rounded to.
const UNITS: u32 = 1_000_000;
/// A token as the word counts it.
const TOKEN: u64 = UNITS as u64;

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
    /// When the bucket will be full again; 0 and anything in the past mean full.
    full_at: AtomicU64,
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

impl Bucket {
    /// Values out of range are brought into it; `Budget::validate` reports them.
    pub(super) fn new(ratio: f64, burst: u32, initial: u32) -> Self {
        let missing = burst.saturating_sub(initial);
        Self {
            full_at: AtomicU64::new(u64::from(missing) * TOKEN),
            deposit: share(ratio, UNITS),
            burst: u64::from(burst) * TOKEN,
        }
    }

    /// Gives back a share of a token. `now` is read only if the bucket is not known to be full.
    #[inline]
    pub(super) fn deposit(&self, now: impl Fn() -> u64) {
        let full_at = self.full_at.load(Relaxed);
        if full_at != 0 {
            self.deposit_missing(full_at, now);
        }
    }

    fn deposit_missing(&self, mut full_at: u64, now: impl Fn() -> u64) {
        while full_at != 0 {
            let after = full_at.saturating_sub(self.deposit);
            let after = if after <= now() { 0 } else { after };
            match self.swap(full_at, after) {
                Ok(_) => return,
                Err(current) => full_at = current,
            }
        }
    }

    /// Takes a token, if there is one.
    pub(super) fn withdraw(&self, now: impl Fn() -> u64) -> bool {
        let mut full_at = self.full_at.load(Relaxed);
        loop {
            let now = now();
            let after = full_at.max(now).saturating_add(TOKEN);
            if after - now > self.burst {
                return false;
            }
            match self.swap(full_at, after) {
                Ok(_) => return true,
                Err(current) => full_at = current,
            }
        }
    }

    /// Puts an unused token back.
    pub(super) fn refund(&self) {
        let mut full_at = self.full_at.load(Relaxed);
        while let Err(current) = self.swap(full_at, full_at.saturating_sub(TOKEN)) {
            full_at = current;
        }
    }

    fn swap(&self, current: u64, new: u64) -> Result<u64, u64> {
        self.full_at
            .compare_exchange_weak(current, new, Relaxed, Relaxed)
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
