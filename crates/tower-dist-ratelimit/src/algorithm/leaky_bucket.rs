use std::time::Duration;

use super::{
    Arithmetic, Ask, OneNumber,
    adjusted::Paced,
    pace::{MAX_AHEAD, Moment, Pace},
    saturating_nanos,
};
use crate::{BuildError, Decision, Quota};

/// A leaky bucket as a queue: requests leave it one after the other, exactly `window / limit` apart for each token, and
/// wait until it is their turn; those that would wait too long are rejected.
///
/// (A leaky bucket as a meter is the token bucket, seen from the other side.)
///
/// Kept as one number: the instant at which the last of the queue has had its time, in units of its `Pace`. 0 stands
/// for a queue that nobody has used.
#[derive(Clone, Copy, Debug)]
pub struct LeakyQueue {
    limit: u64,
    /// The most expensive request, in tokens.
    most: u64,
    /// In nanoseconds.
    max_wait: u64,
    pace: Pace,
}

impl LeakyQueue {
    pub fn new(quota: Quota, max_wait: Duration) -> Result<Self, BuildError> {
        let pace = Pace::new(quota)?;
        Ok(Self::paced(quota, pace, saturating_nanos(max_wait)))
    }

    /// The queue of a quota of this pace.
    fn paced(quota: Quota, pace: Pace, max_wait: u64) -> Self {
        let most = match quota.limit() {
            0 => 0,
            _ => quota.burst_size().min(pace.tokens(MAX_AHEAD)),
        };
        Self {
            limit: quota.limit(),
            most,
            max_wait,
            pace,
        }
    }

    /// By how much the next would wait too long.
    fn too_long(&self, now: Moment, empty_at: u64) -> Duration {
        let delay = self.pace.span(now, empty_at.saturating_sub(now.units));
        delay.saturating_sub(Duration::from_nanos(self.max_wait))
    }

    /// How many more requests of one token could join a queue that is this long.
    fn places(&self, now: Moment, ahead: u64) -> u64 {
        if self.most == 0 {
            return 0;
        }
        let last = self.pace.at(now.nanos.saturating_add(self.max_wait)).units;
        (last - now.units)
            .checked_sub(ahead)
            .map_or(0, |room| self.pace.tokens(room) + 1)
    }
}

impl Arithmetic for LeakyQueue {
    type State = u64;
    type Moment = Moment;

    fn at(&self, nanos: u64, _: u64) -> Moment {
        self.pace.at(nanos)
    }

    /// Grants no more than the cost: tokens to spend at will would undo the spacing.
    #[inline]
    fn decide(&self, empty_at: &u64, now: Moment, ask: &Ask<'_>, out: &mut Decision) {
        let ahead = empty_at.saturating_sub(now.units);
        let delay = self.pace.span(now, ahead);
        let too_long = self.too_long(now, *empty_at);
        if ask.cost == 0 {
            *out = Decision::allow(0, self.limit, self.places(now, ahead), delay);
        } else if ask.cost <= self.most && too_long.is_zero() {
            let ahead = ahead + self.pace.units(ask.cost);
            let left = self.places(now, ahead);
            *out = Decision::allow(ask.cost, self.limit, left, self.pace.span(now, ahead));
            out.delay = delay;
        } else {
            let retry_after = (ask.cost <= self.most).then_some(too_long);
            *out = Decision::reject(self.limit, self.places(now, ahead), retry_after, delay);
        }
    }

    fn take(&self, empty_at: &mut u64, now: Moment, _: &Ask<'_>, tokens: u64) {
        *empty_at = now.units.max(*empty_at) + self.pace.units(tokens);
    }

    /// A request that left the queue early moves those up who come later, not those who wait already.
    fn settle(&self, empty_at: &mut u64, now: Moment, _: &Ask<'_>, delta: i64) -> bool {
        let ahead = empty_at.saturating_sub(now.units);
        let settled = self.pace.settled(ahead, delta);
        if settled != ahead {
            *empty_at = now.units + settled;
        }
        settled != ahead
    }

    fn pressure(&self, empty_at: &u64, now: Moment) -> u64 {
        empty_at.saturating_sub(now.units)
    }
}

impl Paced for LeakyQueue {
    const KIND: u8 = 0x12;

    fn adjusted(&self, quota: Quota) -> Self {
        Self::paced(quota, Pace::nearest(quota), self.max_wait)
    }

    fn pace(&self) -> &Pace {
        &self.pace
    }
}

impl OneNumber for LeakyQueue {
    #[inline]
    fn granted(&self, empty_at: u64, now: Moment, ask: &Ask<'_>) -> u64 {
        match ask.cost <= self.most && self.too_long(now, empty_at).is_zero() {
            true => ask.cost,
            false => 0,
        }
    }
}

#[cfg(test)]
mod tests;
