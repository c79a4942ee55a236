use std::time::Duration;

use super::{Allowed, Now, OneNumber, Take, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota, build_error::ensure, quota::HORIZON};

/// A counter that restarts at zero with every window. The first window begins at time 0. Staggered windows begin
/// earlier, by a part of a window that depends on the key. So the windows of different keys usually begin at different
/// times.
///
/// The state is one number. Its high bits are the number of the window, counted from 1, and its low `count_bits` are
/// the count. So the state grows with each window, and with each token in a window. 0 stands for an unused key.
///
/// A request's own quota changes only the limit; the window keeps its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FixedWindow {
    limit: u64,
    /// Length of a window, in nanoseconds.
    window: u64,
    count_bits: u32,
    staggered: bool,
}

/// An instant, and the number of the key's window that contains it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowTime {
    /// Nanoseconds since the key's first window began.
    nanos: u64,
    /// The number of the window, counted from 1.
    number: u64,
}

impl FixedWindow {
    /// # Errors
    ///
    /// An invalid quota, or a limit that needs more than `count_bits` bits. The other bits of the state must hold the
    /// number of the window at the horizon.
    pub(crate) fn new(quota: Quota, staggered: bool) -> Result<Self, BuildError> {
        quota.check()?;
        let window = saturating_nanos(quota.window());
        // One more because windows can be staggered, and one more because numbers start at 1.
        let windows = saturating_nanos(HORIZON) / window + 2;
        let count_bits = windows.leading_zeros();
        let most = (1 << count_bits) - 1;
        let (limit, time) = (quota.limit(), quota.window());
        ensure!(limit <= most, "limit" is limit, "at most {most} in a fixed window of {time:?}");
        Ok(Self {
            limit: quota.limit(),
            window,
            count_bits,
            staggered,
        })
    }

    fn most(&self) -> u64 {
        (1 << self.count_bits) - 1
    }

    /// Returns the number and the count of the window to charge: the present one, or the stored one if the clock has
    /// jumped back.
    fn read(&self, state: u64, now: WindowTime) -> (u64, u64) {
        let number = state >> self.count_bits;
        if number < now.number {
            (now.number, 0)
        } else {
            (number, state & self.most())
        }
    }

    fn write(&self, number: u64, count: u64) -> u64 {
        number << self.count_bits | count
    }
}

impl OneNumber for FixedWindow {
    type Moment = WindowTime;

    fn at(&self, now: Now) -> WindowTime {
        let phase = if self.staggered {
            scaled(now.key, self.window)
        } else {
            0
        };
        let nanos = clamp(now.nanos) + phase;
        WindowTime {
            nanos,
            number: nanos / self.window + 1,
        }
    }

    #[inline(always)]
    fn granted(&self, state: u64, now: WindowTime, take: &Take<'_>) -> Option<u64> {
        let limit = take.limit(self.limit, self.most());
        take.granted(limit.saturating_sub(self.read(state, now).1))
    }

    #[inline(always)]
    fn allow(&self, state: u64, now: WindowTime, take: &Take<'_>, granted: u64) -> Allowed {
        let (number, count) = self.read(state, now);
        let limit = take.limit(self.limit, self.most());
        Allowed {
            limit,
            remaining: limit.saturating_sub(count + granted),
            // Numbers start at 1, so this window ends at `number * window`.
            reset_after: match count + granted {
                0 => Duration::ZERO,
                _ => Duration::from_nanos(number * self.window - now.nanos),
            },
            delay: Duration::ZERO,
        }
    }

    fn reject(&self, state: u64, now: WindowTime, take: &Take<'_>) -> Decision {
        let (number, count) = self.read(state, now);
        let limit = take.limit(self.limit, self.most());
        let left = Duration::from_nanos(number * self.window - now.nanos);
        decide_count(limit, count, left, take)
    }

    fn take(&self, state: u64, now: WindowTime, tokens: u64) -> u64 {
        let (number, count) = self.read(state, now);
        self.write(number, count + tokens)
    }

    fn settle(&self, state: u64, now: WindowTime, delta: i64) -> u64 {
        let (number, count) = self.read(state, now);
        match count.saturating_add_signed(delta).min(self.most()) {
            settled if settled == count => state,
            settled => self.write(number, settled),
        }
    }
}

/// Decides by the `count` of taken tokens in a window that ends after `left`.
#[inline(always)]
pub(crate) fn decide_count(limit: u64, count: u64, left: Duration, take: &Take<'_>) -> Decision {
    let reset_after = |granted| match count + granted {
        0 => Duration::ZERO,
        _ => left,
    };
    let free = limit.saturating_sub(count);
    take.decision(limit, free, limit, reset_after, || left)
}

/// Maps 64 bits to `0..len`.
fn scaled(bits: u64, len: u64) -> u64 {
    u64::try_from((u128::from(bits) * u128::from(len)) >> 64).unwrap_or(0)
}
