//! Sizes of refills and pauses between them, as pure functions.

use super::demand::scale;

/// Minimum requests per lease time for a key to be leased. At lower rates, a lease saves too few round
/// trips for the tokens that expire with it.
pub(super) const HOT: u64 = 16;

/// Consecutive short grants after which the pause stops growing. The longest pause is the time of
/// 2⁴ = 16 requests, so a key that is always short costs one round trip per 16 decisions.
const MOST_SHORT: u8 = 5;

/// Requests in the longest pause, and in a refill of a key that is always short.
const BATCH: u64 = 1 << (MOST_SHORT - 1);

/// The inputs that determine the size of a refill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    /// Requests per lease time.
    pub(super) demand: u64,
    /// Tokens per request.
    pub(super) cost: u64,
    /// Leased tokens held here.
    pub(super) held: u64,
    /// Remaining tokens in the backend's last answer.
    pub(super) remaining: u64,
    /// Maximum tokens of the quota.
    pub(super) burst: u64,
}

impl Outlook {
    /// Returns the tokens to request in advance: three quarters of the tokens used in a lease time, minus
    /// the held tokens, so that few expire. The result is at most a quarter of the remaining tokens, so
    /// that shares shrink near the limit and other instances find tokens. If few remain, the maximum is
    /// one batch.
    pub(super) fn extra(self) -> u64 {
        let target = (self.demand - self.demand / 4).saturating_mul(self.cost);
        let batch = BATCH.saturating_mul(self.cost).min(self.burst / 4);
        target
            .saturating_sub(self.held)
            .min((self.remaining / 4).max(batch))
    }
}

/// Counts the grants that were smaller than requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage(u8);

impl Shortage {
    /// Updates the count after an answer. A full grant lowers it by one.
    pub(super) fn after(self, short: bool) -> Self {
        Self(if short {
            (self.0 + 1).min(MOST_SHORT)
        } else {
            self.0.saturating_sub(1)
        })
    }

    /// Returns whether the shortage has outlasted several pauses.
    pub(super) fn lasts(self) -> bool {
        self.0 >= 3
    }

    /// Returns the pause before the next refill: the time of 1, 2, 4, 8 or 16 requests, at most one lease
    /// time. The first pauses are so short that a brief shortage rejects hardly any request here.
    pub(super) fn pause(self, demand: u64, lease: u64) -> u64 {
        match self.0 {
            0 => 0,
            row => scale(lease, 1 << (row - 1), demand.max(1)).min(lease),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Outlook = Outlook {
        demand: 400,
        cost: 1,
        held: 0,
        remaining: 1_000_000,
        burst: 1_000_000,
    };

    #[test]
    fn a_refill_covers_three_quarters_of_the_demand_if_many_tokens_remain() {
        assert_eq!(PLENTY.extra(), 300);
        let held = Outlook {
            held: 100,
            ..PLENTY
        };
        assert_eq!(held.extra(), 200);
        let costly = Outlook { cost: 3, ..PLENTY };
        assert_eq!(costly.extra(), 900);
    }

    #[test]
    fn shares_shrink_with_the_remaining_tokens() {
        let of = |remaining| {
            Outlook {
                remaining,
                burst: 400,
                ..PLENTY
            }
            .extra()
        };
        assert_eq!((of(400), of(200), of(80), of(0)), (100, 50, 20, BATCH));
    }

    #[test]
    fn a_refill_covers_a_batch_of_requests_of_any_cost_if_few_tokens_remain() {
        let costly = Outlook {
            cost: 3,
            remaining: 0,
            ..PLENTY
        };
        assert_eq!(costly.extra(), 3 * BATCH);
    }

    #[test]
    fn a_shortage_lasts_from_the_third_answer_on() {
        let (mut short, mut lasts) = (Shortage::default(), Vec::new());
        for _ in 0..4 {
            short = short.after(true);
            lasts.push(short.lasts());
        }
        assert_eq!(lasts, [false, false, true, true]);
    }

    #[test]
    fn a_burst_too_small_to_share_is_not_leased() {
        let small = Outlook {
            burst: 3,
            remaining: 3,
            ..PLENTY
        };
        assert_eq!(small.extra(), 0);
    }

    #[test]
    fn pauses_double_during_a_shortage_and_shrink_after_it() {
        let mut short = Shortage::default();
        let mut pauses = Vec::new();
        for _ in 0..7 {
            short = short.after(true);
            pauses.push(short.pause(100, 100));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 16, 16]);
        assert_eq!(short.after(false).pause(100, 100), 8);
        assert_eq!(short.pause(1, 100), 100);
        assert_eq!(Shortage::default().after(false), Shortage::default());
    }
}
