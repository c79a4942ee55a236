use std::time::Duration;

use super::{Arithmetic, Bucket, Now, OneNumber, Take, Words, pace::Moment, saturating_nanos};
use crate::{Decision, Quota};

/// The largest valid state. The clock's maximum is 2⁶³ units. A state exceeds this maximum by at most `MAX_AHEAD`
/// units.
const LARGEST: u64 = (1 << 63) + super::pace::MAX_AHEAD;

/// A bucket or queue whose quota can change per key and request.
///
/// A request with a cost and another quota puts that quota in force. A rejected request does so only if the key has
/// used tokens and the two quotas differ in pace. A request without a quota has the policy's own.
///
/// Used tokens drain at the rate of the quota in force. When the quota changes, they stay used, up to `MAX_AHEAD` units
/// of the new quota. A quota that is too large to count exactly acts like the nearest countable quota. A quota of zero
/// rejects every cost above zero, and is never in force.
///
/// A clock can be behind the clock of the last write. A change then takes place at the time of the last write.
/// Otherwise each change to a faster quota would drain tokens for the difference between the clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjusted {
    quota: Quota,
    own: Bucket,
}

/// The words of a used key.
struct Used {
    /// The state of the bucket under the quota in force.
    state: u64,
    in_force: Quota,
    /// The latest time of a write, in nanoseconds.
    written: u64,
}

impl Used {
    fn read(words: &[u64]) -> Option<Self> {
        let [state, limit, window, burst, written] = *words else {
            return None;
        };
        Some(Self {
            state,
            in_force: Quota::new(limit, Duration::from_nanos(window)).burst(burst),
            written,
        })
    }
}

impl Adjusted {
    /// `own` is the bucket of the policy's `quota`.
    pub(crate) fn new(quota: Quota, own: Bucket) -> Self {
        Self { quota, own }
    }

    fn bucket(&self, quota: Quota) -> Bucket {
        match quota == self.quota {
            true => self.own,
            false => self.own.adjusted(quota),
        }
    }

    fn asked(&self, take: &Take<'_>) -> Quota {
        take.quota.copied().unwrap_or(self.quota)
    }

    /// Returns the used units that have not drained by `nanos`, and the `token_bits` of the quota that is stored with
    /// the key.
    fn left(&self, used: &Used, nanos: u64) -> (u64, u32) {
        let pace = self.bucket(used.in_force).pace;
        let left = used.state.saturating_sub(pace.at(nanos).units);
        (left, pace.token_bits)
    }

    /// Returns the state in the units of `bucket`, which belongs to `quota`. `latest` is not before the last write.
    ///
    /// A converted state is at least the clock's units at `latest`, even if all used tokens have drained by then.
    /// Otherwise a request whose clock is behind `latest` could take tokens that drain only by `latest`.
    fn state(&self, words: &[u64], bucket: &Bucket, quota: Quota, latest: Now) -> u64 {
        let Some(used) = Used::read(words) else {
            return 0;
        };
        if used.in_force == quota {
            return used.state;
        }
        let (left, bits) = self.left(&used, latest.nanos);
        bucket.at(latest).units + bucket.pace.converted(left, bits)
    }

    /// Replaces the state with the result of `change`, puts the quota `in_force` in force, and returns `true`. If
    /// `change` returns `None`, keeps the state and the quota, and returns `false`.
    fn change(
        &self,
        words: &mut Words,
        now: Now,
        in_force: Quota,
        change: impl FnOnce(&Bucket, u64, Moment) -> Option<u64>,
    ) -> bool {
        let (bucket, latest) = (self.bucket(in_force), latest(words, now));
        let state = self.state(words, &bucket, in_force, latest);
        let Some(state) = change(&bucket, state, bucket.at(latest)) else {
            return false;
        };
        let (limit, burst) = (in_force.limit(), in_force.burst_size());
        let window = saturating_nanos(in_force.window());
        let used = [state, limit, window, burst, latest.nanos];
        match words.len() {
            5 => words.copy_from_slice(&used),
            // Allocates exactly five words.
            _ => *words = Words::from_slice(&used),
        }
        true
    }

    /// Returns the quota in force, or `None` if no tokens are used.
    fn in_force(&self, words: &[u64], now: Now) -> Option<Quota> {
        let used = Used::read(words)?;
        (self.left(&used, latest(words, now).nanos).0 > 0).then_some(used.in_force)
    }
}

/// Returns `now`, or the time of the last write if that is later.
fn latest(words: &[u64], now: Now) -> Now {
    let written = Used::read(words).map_or(0, |used| used.written);
    let nanos = now.nanos.max(written);
    Now { nanos, ..now }
}

impl Arithmetic for Adjusted {
    fn decide(&self, words: &[u64], now: Now, take: &Take<'_>) -> Decision {
        let quota = self.asked(take);
        let bucket = self.bucket(quota);
        let state = self.state(words, &bucket, quota, latest(words, now));
        OneNumber::decide(&bucket, state, bucket.at(now), take)
    }

    fn take(&self, words: &mut Words, now: Now, take: &Take<'_>, tokens: u64) {
        self.change(words, now, self.asked(take), |bucket, state, now| {
            Some(OneNumber::take(bucket, state, now, tokens))
        });
    }

    /// Writes nothing if the request's quota has the same pace as the quota in force: the stored state is then valid
    /// under both. Two such quotas can still differ in their bursts.
    fn adopt(&self, words: &mut Words, now: Now, take: &Take<'_>) {
        let quota = self.asked(take);
        let pace = |quota| self.bucket(quota).pace;
        let changes_pace = |in_force| in_force != quota && pace(in_force) != pace(quota);
        if !quota.is_zero() && self.in_force(words, now).is_some_and(changes_pace) {
            self.change(words, now, quota, |_, state, _| Some(state));
        }
    }

    /// An extra charge that takes tokens puts its quota in force. If this quota is zero, the policy's own quota comes
    /// into force instead. A refund does not change the quota in force.
    fn settle(&self, words: &mut Words, now: Now, take: &Take<'_>, delta: i64) -> bool {
        let asked = take.quota.filter(|quota| !quota.is_zero());
        let in_force = self.in_force(words, now).filter(|_| delta < 0);
        let quota = in_force.unwrap_or(*asked.unwrap_or(&self.quota));
        self.change(words, now, quota, |bucket, state, now| {
            let settled = OneNumber::settle(bucket, state, now, delta);
            (settled != state).then_some(settled)
        })
    }

    fn ttl(&self, words: &[u64], now: Now) -> Duration {
        let Some(used) = Used::read(words) else {
            return Duration::ZERO;
        };
        let pace = self.bucket(used.in_force).pace;
        let now = pace.at(latest(words, now).nanos);
        pace.span(now, used.state.saturating_sub(now.units))
    }

    fn decode(&self, words: Words) -> Option<Words> {
        matches!(*words, [] | [..=LARGEST, _, _, _, _]).then_some(words)
    }
}
