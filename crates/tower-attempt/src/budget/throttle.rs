use std::sync::atomic::Ordering::Relaxed;

use super::AtomicU64;
use super::bucket::share;
use crate::BuildError;

/// Thousandths per token: gRFC A6 counts up to three decimal places.
const TOKEN: u32 = 1_000;
/// grpc-go's upper end of `maxTokens`; gRFC A6 names none.
const MAX_TOKENS: u32 = 1_000;
/// The smallest ratio that three decimal places can tell from 0.
const MIN_RATIO: f64 = 0.001;

/// gRPC's retry throttle: a count of failures against successes, with no clock.
///
/// Relaxed ordering is enough, since the count is all the state there is.
#[derive(Debug)]
pub(super) struct Throttle {
    max_tokens: u32,
    token_ratio: f64,
    /// Thousandths that a success adds.
    deposit: u64,
    /// `max_tokens` in thousandths.
    full: u64,
    /// In thousandths, from 0 to `full`.
    count: AtomicU64,
}

impl Throttle {
    /// Values out of range are safe to use; `validate` reports them.
    pub(super) fn new(max_tokens: u32, token_ratio: f64) -> Self {
        let full = u64::from(max_tokens) * u64::from(TOKEN);
        Self {
            max_tokens,
            token_ratio,
            deposit: share(token_ratio, TOKEN),
            full,
            count: AtomicU64::new(full),
        }
    }

    /// One with the same settings and a count of its own.
    pub(super) fn fresh(&self) -> Self {
        Self::new(self.max_tokens, self.token_ratio)
    }

    pub(super) fn validate(&self) -> Result<(), BuildError> {
        let (max_tokens, token_ratio) = (self.max_tokens, self.token_ratio);
        if !(1..=MAX_TOKENS).contains(&max_tokens) {
            let bound = "from 1 to 1000 tokens";
            return Err(BuildError::new("budget.max_tokens", max_tokens, bound));
        }
        if !(MIN_RATIO..=f64::MAX).contains(&token_ratio) {
            let bound = "at least 0.001 tokens per success";
            return Err(BuildError::new("budget.token_ratio", token_ratio, bound));
        }
        Ok(())
    }

    /// A call went well.
    #[inline]
    pub(super) fn deposit(&self) {
        if self.count() != self.full {
            self.change(|count| count.saturating_add(self.deposit).min(self.full));
        }
    }

    /// An attempt failed.
    pub(super) fn record_failure(&self) {
        self.change(|count| count.saturating_sub(TOKEN.into()));
    }

    /// Writes only a count that changes.
    fn change(&self, change: impl Fn(u64) -> u64) {
        let changed = |count| Some(change(count)).filter(|after| *after != count);
        let _ = self.count.fetch_update(Relaxed, Relaxed, changed);
    }

    /// Whether extra attempts may be sent: the count is above half of its maximum.
    pub(super) fn is_open(&self) -> bool {
        self.count() > self.full / 2
    }

    /// As it was at first.
    pub(super) fn is_full(&self) -> bool {
        self.count() == self.full
    }

    pub(super) fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

#[cfg(test)]
#[cfg(not(tower_attempt_loom))]
mod tests;
