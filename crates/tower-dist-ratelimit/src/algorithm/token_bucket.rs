use super::{
    Arithmetic, Ask, OneNumber,
    adjusted::Paced,
    pace::{MAX_AHEAD, Moment, Pace},
};
use crate::{BuildError, Decision, Quota};

/// A token bucket kept as one number: the instant at which it is full again (GCRA), in units of its `Pace`.
///
/// A bucket whose instant has passed is full: 0 stands for one that nobody has used.
///
/// Rounding can admit a request less than one unit early, which is less than a nanosecond unless the burst is huge. It
/// never does so where a token takes a whole number of nanoseconds, as with 1,000 a second or 600 a minute. Otherwise one
/// number cannot avoid it: the clock of 63 bits has no room for the fraction of a unit at which the bucket began to
/// drain. "Four tokens taken now" and "five tokens taken when the clock stood one token lower" are the same number,
/// but only the first may admit a fifth token at this instant. Costlier tokens would admit none early and lose requests
/// at a steady rate instead.
///
/// Seen from the other side it is a leaky bucket that meters: what is missing from the one is what is in the other.
#[derive(Clone, Copy, Debug)]
pub struct TokenBucket {
    limit: u64,
    /// In units.
    burst: u64,
    pace: Pace,
}

impl TokenBucket {
    pub fn new(quota: Quota) -> Result<Self, BuildError> {
        Ok(Self::paced(quota, Pace::new(quota)?))
    }

    /// The bucket of a quota of this pace. It holds as much of the burst as can be counted.
    fn paced(quota: Quota, pace: Pace) -> Self {
        let burst = match quota.limit() {
            0 => 0,
            _ => quota.burst_size().min(pace.tokens(MAX_AHEAD)),
        };
        Self {
            limit: quota.limit(),
            burst: pace.units(burst),
            pace,
        }
    }

    /// Whole tokens that are in it.
    fn free(&self, full_at: u64, now: Moment) -> u64 {
        let used = full_at.saturating_sub(now.units);
        self.pace.tokens(self.burst.saturating_sub(used))
    }
}

impl Arithmetic for TokenBucket {
    type State = u64;
    type Moment = Moment;

    fn at(&self, nanos: u64, _: u64) -> Moment {
        self.pace.at(nanos)
    }

    #[inline(always)]
    fn decide(&self, full_at: &u64, now: Moment, ask: &Ask<'_>, out: &mut Decision) {
        let used = full_at.saturating_sub(now.units);
        let free = self.free(*full_at, now);
        if let Some(granted) = ask.granted(free) {
            let reset_after = self.pace.span(now, used + self.pace.units(granted));
            *out = Decision::allow(granted, self.limit, free - granted, reset_after);
            return;
        }
        let retry_after = (ask.cost <= self.pace.tokens(self.burst)).then(|| {
            let missing = used + self.pace.units(ask.cost) - self.burst;
            self.pace.span(now, missing)
        });
        let reset_after = self.pace.span(now, used);
        *out = Decision::reject(self.limit, free, retry_after, reset_after);
    }

    fn take(&self, full_at: &mut u64, now: Moment, _: &Ask<'_>, tokens: u64) {
        *full_at = now.units.max(*full_at) + self.pace.units(tokens);
    }

    fn settle(&self, full_at: &mut u64, now: Moment, _: &Ask<'_>, delta: i64) -> bool {
        let used = full_at.saturating_sub(now.units);
        let settled = self.pace.settled(used, delta);
        if settled != used {
            *full_at = now.units + settled;
        }
        settled != used
    }

    fn pressure(&self, full_at: &u64, now: Moment) -> u64 {
        full_at.saturating_sub(now.units)
    }
}

impl Paced for TokenBucket {
    const KIND: u8 = 0x11;

    fn adjusted(&self, quota: Quota) -> Self {
        Self::paced(quota, Pace::nearest(quota))
    }

    fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl OneNumber for TokenBucket {
    #[inline(always)]
    fn granted(&self, full_at: u64, now: Moment, ask: &Ask<'_>) -> u64 {
        ask.granted(self.free(full_at, now)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests;
