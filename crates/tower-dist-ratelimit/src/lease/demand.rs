//! The demand for a key's tokens, the sizes of refills, and the pauses between refills. All functions are pure. Times
//! are in nanoseconds.

/// Minimum [expected](Demand::expected) requests per lease time for a key to be leased. At lower rates, a lease saves
/// too few round trips for the tokens that expire with it.
pub(super) const HOT: u64 = 16;

/// The highest severity of a [`Shortage`]. Its [pause](Shortage::pause) is the time of 2⁴ = 16 requests, but at most
/// one lease time. So a key that is always short usually costs at most one round trip per 16 decisions.
const MOST_SHORT: u8 = 5;

/// Number of requests in the longest [`Shortage::pause`]. While few tokens remain, a refill leases at most the cost of
/// this many requests.
const BATCH: u64 = 1 << (MOST_SHORT - 1);

/// Request rate of one key in this process: requests per lease time, as a moving average.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// Requests per lease time, in 1,024ths of a request, so that small changes rarely round to zero.
    parts: u64,
    /// When the last update was.
    since: u64,
    /// When the measurement started.
    from: u64,
}

const PARTS: u64 = 1024;

impl Demand {
    /// Starts a measurement.
    pub(super) fn begin(now: u64) -> Self {
        Self {
            parts: 0,
            since: now,
            from: now,
        }
    }

    /// Estimates the value that the average reaches if the rate stays the same. A new average is usually too low. After
    /// `a` lease times, it has reached about 1 - e^-a of that value, or roughly a / (1 + a/2). So the estimate is the
    /// average times 1/a + 1/2. From a = 2 on, the average itself is the estimate. An `a` below 1/8 counts as 1/8. This
    /// limits how far the first requests inflate the estimate.
    pub(super) fn expected(self, lease: u64) -> u64 {
        let age = self.since.saturating_sub(self.from);
        let seen = self.per_lease();
        if age >= lease.saturating_mul(2) {
            return seen;
        }
        scale(seen, lease, age.max(lease / 8)).saturating_add(seen / 2)
    }

    /// Returns the measured requests per lease time. The value is usually too low at first.
    pub(super) fn per_lease(self) -> u64 {
        self.parts / PARTS
    }

    /// Adds the requests since the last update.
    pub(super) fn add(self, requests: u64, now: u64, lease: u64) -> Self {
        let passed = now.saturating_sub(self.since);
        let new = requests.saturating_mul(PARTS);
        let parts = if passed >= lease {
            scale(new, lease, passed)
        } else {
            let gone = scale(self.parts, passed, lease);
            (self.parts - gone).saturating_add(new)
        };
        Self {
            parts,
            since: now.max(self.since),
            from: self.from,
        }
    }
}

/// Returns `value · times ÷ by`, rounded down.
fn scale(value: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(times) / u128::from(by.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

/// A claim on leased tokens.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Hash of the policy, the key and the quota.
    pub(super) tag: u64,
    pub(super) cost: u64,
    /// Maximum tokens of the quota.
    pub(super) burst: u64,
    pub(super) now: u64,
    /// Whether the claim is for a refill in the background, for which no request waits.
    pub(super) ahead: bool,
}

impl Claim {
    /// Returns the number of tokens to lease: three quarters of the tokens that `demand` requests of this cost use,
    /// minus the held tokens, so that few expire.
    ///
    /// The maximum is a quarter of the backend's remaining tokens, so that leases shrink near the limit and other
    /// instances find tokens. But the maximum is at least the smaller of two numbers: the cost of [`BATCH`] requests,
    /// and a quarter of the burst.
    pub(super) fn extra(self, demand: u64, held: u64, remaining: u64) -> u64 {
        let target = (demand - demand / 4).saturating_mul(self.cost);
        let batch = BATCH.saturating_mul(self.cost).min(self.burst / 4);
        target.saturating_sub(held).min((remaining / 4).max(batch))
    }
}

/// The severity of a shortage of tokens, from 0 to [`MOST_SHORT`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Shortage(u8);

impl Shortage {
    /// Returns the severity after an answer. A `short` grant raises it by one, up to [`MOST_SHORT`]. Any other grant
    /// lowers it by one, down to zero.
    pub(super) fn after(self, short: bool) -> Self {
        Self(if short {
            (self.0 + 1).min(MOST_SHORT)
        } else {
            self.0.saturating_sub(1)
        })
    }

    pub(super) fn is_persistent(self) -> bool {
        self.0 >= 3
    }

    /// Returns the pause before the next refill, without regard to the backend's own wait: the time of 1, 2, 4, 8 or 16
    /// requests, at most one lease time. Without a shortage, returns zero. The first pauses are short, so that they
    /// cause few rejections during a brief shortage.
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

    const LEASE: u64 = 1_000_000;

    /// Measures single requests at this interval.
    fn every(gap: u64, requests: u64) -> u64 {
        let mut demand = Demand::default().add(0, LEASE, LEASE);
        for n in 1..=requests {
            demand = demand.add(1, LEASE + n * gap, LEASE);
        }
        demand.per_lease()
    }

    #[test]
    fn demand_settles_at_the_requests_per_lease_time() {
        assert_eq!(every(LEASE / 10, 1_000), 10);
        assert_eq!(every(LEASE / 1_000, 10_000), 1_000);
        assert_eq!(every(LEASE, 10), 1);
        assert_eq!(every(2 * LEASE, 10), 0);
    }

    #[test]
    fn the_first_requests_predict_the_demand() {
        let gap = LEASE / 400;
        let mut demand = Demand::begin(LEASE);
        for n in 1..=1_200_u64 {
            demand = demand.add(1, LEASE + n * gap, LEASE);
            if n >= 50 {
                let expected = demand.expected(LEASE);
                assert!((340..=470).contains(&expected), "{expected} after {n}");
            }
        }
    }

    #[test]
    fn requests_recorded_after_a_pause_are_spread_over_it() {
        let demand = Demand::default().add(100, 10 * LEASE, LEASE);
        assert_eq!(demand.per_lease(), 10);
    }

    #[test]
    fn a_time_before_the_last_update_counts_as_no_time_passed() {
        let demand = Demand::default().add(5, 10 * LEASE, LEASE);
        let after = demand.add(3, 9 * LEASE, LEASE);
        assert_eq!(after.per_lease(), demand.per_lease() + 3);
        assert_eq!(after.add(0, 10 * LEASE, LEASE), after);
    }

    /// The extra tokens of a request at a demand of 400.
    fn extra(cost: u64, burst: u64, held: u64, remaining: u64) -> u64 {
        let claim = Claim {
            tag: 1,
            cost,
            burst,
            now: 0,
            ahead: false,
        };
        claim.extra(400, held, remaining)
    }

    const PLENTY: u64 = 1_000_000;

    #[test]
    fn a_refill_covers_three_quarters_of_the_demand_if_many_tokens_remain() {
        assert_eq!(extra(1, PLENTY, 0, PLENTY), 300);
        assert_eq!(extra(1, PLENTY, 100, PLENTY), 200);
        assert_eq!(extra(3, PLENTY, 0, PLENTY), 900);
    }

    #[test]
    fn shares_shrink_with_the_remaining_tokens() {
        let of = |remaining| extra(1, 400, 0, remaining);
        assert_eq!((of(400), of(200), of(80), of(0)), (100, 50, 20, BATCH));
    }

    #[test]
    fn a_refill_covers_a_batch_of_requests_of_any_cost_if_few_tokens_remain() {
        assert_eq!(extra(3, PLENTY, 0, 0), 3 * BATCH);
    }

    #[test]
    fn a_burst_too_small_to_share_is_not_leased() {
        assert_eq!(extra(1, 3, 0, 3), 0);
    }

    #[test]
    fn a_shortage_lasts_from_the_third_answer_on() {
        let (mut short, mut lasts) = (Shortage::default(), Vec::new());
        for _ in 0..4 {
            short = short.after(true);
            lasts.push(short.is_persistent());
        }
        assert_eq!(lasts, [false, false, true, true]);
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
