use std::time::Duration;

use super::{
    Allowed, Now, OneNumber, Take, clamp,
    pace::{MAX_AHEAD, Moment, Pace},
    saturating_nanos,
};
use crate::{BuildError, Decision, Quota};

/// A token bucket or a leaky queue, kept as one number: the instant at which the bucket is full again (GCRA), or the
/// queue is empty, in units of its [`Pace`].
///
/// An instant in the past means a full bucket, so 0 stands for an unused key. A leaky bucket used as a meter has the
/// same state: its level is the number of tokens that the token bucket lacks.
///
/// A leaky queue spaces requests apart, by `window / limit` per token. It rejects a request that would wait longer than
/// `max_wait`.
///
/// # Rounding
///
/// The bounds in this section hold while a key's quota does not change.
///
/// Rounding can admit a request early, by less than one unit. A unit is below a nanosecond, unless the burst takes
/// decades to return. If a unit is below a nanosecond and a token takes a whole number of nanoseconds, as with 1,000
/// per second or 600 per minute, no request is early.
///
/// Otherwise early requests are unavoidable with one number: 63 bits have no room for the fraction of a unit at which
/// the bucket began to refill. With a burst of five, "four tokens taken now" and "five tokens taken almost one token's
/// time ago" round to the same number. After the first history, one more token may be taken now; after the second, it
/// may not. Rounding the price of a token up would prevent early requests, but would admit fewer requests than the
/// limit at a steady rate.
///
/// # Type
///
/// A `Bucket<false>` is never a leaky queue. Its decision is compiled without the code of queues, and takes 5 % less time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bucket<const MAY_QUEUE: bool = true> {
    limit: u64,
    /// Maximum cost of a request, in tokens.
    burst: u64,
    /// The longest wait in a leaky queue, in nanoseconds; `None` for a token or leaky bucket.
    max_wait: Option<u64>,
    pub(super) pace: Pace,
}

impl<const MAY_QUEUE: bool> Bucket<MAY_QUEUE> {
    /// A token bucket, or a leaky queue if `max_wait` is set. A `Bucket<false>` ignores `max_wait`.
    ///
    /// # Errors
    ///
    /// An invalid quota, or a limit or burst that is too large to count exactly.
    pub(crate) fn new(quota: Quota, max_wait: Option<Duration>) -> Result<Self, BuildError> {
        let pace = Pace::new(quota)?;
        Ok(Self::paced(quota, pace, max_wait.map(saturating_nanos)))
    }

    /// The same algorithm under another quota. If that quota is too large to count exactly, the nearest countable quota
    /// applies.
    pub(super) fn adjusted(&self, quota: Quota) -> Self {
        Self::paced(quota, Pace::nearest(quota), self.max_wait)
    }

    fn paced(quota: Quota, pace: Pace, max_wait: Option<u64>) -> Self {
        let burst = match quota.limit() {
            0 => 0,
            _ => quota.burst_size().min(pace.tokens(MAX_AHEAD)),
        };
        Self {
            limit: quota.limit(),
            burst,
            max_wait,
            pace,
        }
    }

    #[inline(always)]
    fn max_wait(&self) -> Option<u64> {
        self.max_wait.filter(|_| MAY_QUEUE)
    }

    /// Returns the number of whole tokens in the bucket when `used` units are missing.
    #[inline(always)]
    fn free(&self, used: u64) -> u64 {
        let full = self.pace.units(self.burst);
        self.pace.tokens(full.saturating_sub(used))
    }

    /// Returns the nanoseconds by which the next request's wait in a queue is too long: longer than `max_wait`, or past
    /// `HORIZON`, the end of the clock's range.
    #[inline]
    fn excess(&self, now: Moment, ahead: u64, max_wait: u64) -> u64 {
        let last = clamp(now.nanos.saturating_add(max_wait));
        self.pace.nanos(now, ahead).saturating_sub(last - now.nanos)
    }

    /// Returns the whole tokens that are free when `used` units are missing. For a queue whose length is `used` units,
    /// returns how many further requests of one token it accepts.
    #[inline(always)]
    fn remaining(&self, now: Moment, used: u64) -> u64 {
        match self.max_wait() {
            None => self.free(used),
            Some(_) if self.burst == 0 => 0,
            Some(max_wait) => {
                let last = self.pace.at(now.nanos.saturating_add(max_wait)).units;
                let room = (last - now.units).checked_sub(used);
                room.map_or(0, |room| self.pace.tokens(room) + 1)
            }
        }
    }
}

impl<const MAY_QUEUE: bool> OneNumber for Bucket<MAY_QUEUE> {
    type Moment = Moment;

    #[inline(always)]
    fn at(&self, now: Now) -> Moment {
        self.pace.at(now.nanos)
    }

    #[inline(always)]
    fn granted(&self, full_at: u64, now: Moment, take: &Take<'_>) -> Option<u64> {
        let used = full_at.saturating_sub(now.units);
        match self.max_wait() {
            None => take.granted(self.free(used)),
            // Ignores `up_to`, because a grant above the cost would undo the spacing.
            Some(max_wait) => {
                let passes = take.cost <= self.burst && self.excess(now, used, max_wait) == 0;
                (passes || take.cost == 0).then_some(take.cost)
            }
        }
    }

    #[inline(always)]
    fn allow(&self, full_at: u64, now: Moment, _: &Take<'_>, granted: u64) -> Allowed {
        let ahead = full_at.saturating_sub(now.units);
        let used = ahead + self.pace.units(granted);
        Allowed {
            limit: self.limit,
            remaining: self.remaining(now, used),
            reset_after: self.pace.span(now, used),
            delay: match self.max_wait() {
                Some(_) if granted > 0 => self.pace.span(now, ahead),
                _ => Duration::ZERO,
            },
        }
    }

    fn reject(&self, full_at: u64, now: Moment, take: &Take<'_>) -> Decision {
        let used = full_at.saturating_sub(now.units);
        let retry_after = (take.cost <= self.burst).then(|| match self.max_wait() {
            None => {
                let needed = used + self.pace.units(take.cost);
                self.pace.nanos(now, needed - self.pace.units(self.burst))
            }
            Some(max_wait) => self.excess(now, used, max_wait),
        });
        let retry_after = retry_after.map(Duration::from_nanos);
        let (remaining, reset_after) = (self.remaining(now, used), self.pace.span(now, used));
        Decision::reject(self.limit, remaining, retry_after, reset_after)
    }

    fn take(&self, full_at: u64, now: Moment, tokens: u64) -> u64 {
        now.units.max(full_at) + self.pace.units(tokens)
    }

    /// A refund to a queue can let new requests start earlier. Requests that already wait keep their times.
    fn settle(&self, full_at: u64, now: Moment, delta: i64) -> u64 {
        let used = full_at.saturating_sub(now.units);
        match self.pace.settled(used, delta) {
            settled if settled == used => full_at,
            settled => now.units + settled,
        }
    }
}

#[cfg(test)]
mod queue_tests;
#[cfg(test)]
mod tests;
