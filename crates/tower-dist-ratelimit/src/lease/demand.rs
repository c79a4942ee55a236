/// Request rate of one key in this process: requests per lease time, as a moving average.
///
/// Pure: times are arguments, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Demand {
    /// In 1,024ths of a request, so that small steps do not round to zero.
    parts: u64,
    since: u64,
    /// Start of the measurement.
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

    /// Estimates the value at which the average settles if the rate stays the same. A new average is too
    /// low: `a` lease times after its start it has reached 1 - e^-a of that value, nearly a ÷ (1 + a/2).
    pub(super) fn expected(self, lease: u64) -> u64 {
        let age = self.since.saturating_sub(self.from);
        let seen = self.per_lease();
        if age >= lease.saturating_mul(2) {
            return seen;
        }
        scale(seen, lease, age.max(lease / 8)).saturating_add(seen / 2)
    }

    /// Returns the measured requests per lease time. The value is too low at first.
    pub(super) fn per_lease(self) -> u64 {
        self.parts / PARTS
    }

    /// Adds the requests since the last update.
    pub(super) fn seen(self, requests: u64, now: u64, lease: u64) -> Self {
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
pub(super) fn scale(value: u64, times: u64, by: u64) -> u64 {
    let scaled = u128::from(value) * u128::from(times) / u128::from(by.max(1));
    u64::try_from(scaled).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: u64 = 1_000_000;

    /// Measures single requests at this interval.
    fn every(gap: u64, requests: u64) -> u64 {
        let mut demand = Demand::default().seen(0, LEASE, LEASE);
        for n in 1..=requests {
            demand = demand.seen(1, LEASE + n * gap, LEASE);
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
            demand = demand.seen(1, LEASE + n * gap, LEASE);
            if n >= 50 {
                let expected = demand.expected(LEASE);
                assert!((340..=470).contains(&expected), "{expected} after {n}");
            }
        }
    }

    #[test]
    fn requests_recorded_after_a_pause_are_spread_over_it() {
        let demand = Demand::default().seen(100, 10 * LEASE, LEASE);
        assert_eq!(demand.per_lease(), 10);
    }

    #[test]
    fn a_time_before_the_last_update_counts_as_no_time_passed() {
        let demand = Demand::default().seen(5, 10 * LEASE, LEASE);
        let after = demand.seen(3, 9 * LEASE, LEASE);
        assert_eq!(after.per_lease(), demand.per_lease() + 3);
        assert_eq!(after.seen(0, 10 * LEASE, LEASE), after);
    }
}
