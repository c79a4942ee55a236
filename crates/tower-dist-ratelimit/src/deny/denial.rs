use std::time::Duration;

use smallvec::SmallVec;

use crate::{Decision, Decisions, Policy, Quota, algorithm::saturating_nanos, backend::Charge};

/// A rejection and its end. Times are in nanoseconds since the cache was created.
pub(super) struct Denial {
    pub(super) tag: u64,
    pub(super) marks: u64,
    /// The rejection is repeated until this time.
    pub(super) until: u64,
    /// When the backend's answer arrived.
    pub(super) told: u64,
    pub(super) costs: SmallVec<[u64; 2]>,
    pub(super) decisions: Decisions,
}

/// How fast the tokens of a policy arrive.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    /// Maximum tokens: the limit of a window, otherwise the burst.
    most: u64,
    has_windows: bool,
    /// The time per token as a fraction, if tokens arrive evenly.
    token: Option<(Duration, u64)>,
}

impl Pace {
    pub(super) fn of(policy: &Policy) -> Self {
        let pace = Self {
            most: 0,
            has_windows: policy.algorithm().has_windows(),
            token: policy
                .algorithm()
                .is_bucket()
                .then_some((Duration::ZERO, 1)),
        };
        pace.with(policy.quota())
    }

    /// Returns the pace with another quota.
    pub(super) fn with(self, quota: Quota) -> Self {
        Self {
            most: if self.has_windows {
                quota.limit()
            } else {
                quota.burst_size()
            },
            has_windows: self.has_windows,
            token: self.token.map(|_| (quota.window(), quota.limit().max(1))),
        }
    }

    /// Returns the time in which these tokens arrive, rounded up. Zero for windows.
    fn time(self, tokens: u64) -> Duration {
        let Some((window, limit)) = self.token else {
            return Duration::ZERO;
        };
        let nanos = u128::from(saturating_nanos(window)) * u128::from(tokens);
        let nanos = nanos.div_ceil(limit.into());
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

impl Denial {
    /// Returns whether the rejection applies to these charges: a rejected charge must cost at least as
    /// much as before, and an allowed charge the same.
    pub(super) fn covers(&self, charges: &[Charge<'_>]) -> bool {
        let known = self.costs.iter().zip(self.decisions.iter());
        self.costs.len() == charges.len()
            && known.zip(charges).all(|((&cost, decision), charge)| {
                if decision.allowed {
                    charge.cost == cost
                } else {
                    charge.cost >= cost
                }
            })
    }

    /// Returns the decision on the charge of this number at `now`. The remaining tokens stay as the backend
    /// reported them.
    pub(super) fn decision(&self, number: usize, cost: u64, pace: Pace, now: u64) -> Decision {
        let told = self.decisions[number];
        let since = Duration::from_nanos(now.saturating_sub(self.told));
        let more = pace.time(cost.saturating_sub(self.costs[number]));
        let wait = told.retry_after.filter(|_| cost <= pace.most);
        Decision {
            retry_after: if told.allowed {
                told.retry_after
            } else {
                wait.map(|wait| wait.saturating_sub(since).saturating_add(more))
            },
            reset_after: told.reset_after.saturating_sub(since),
            ..told
        }
    }
}
