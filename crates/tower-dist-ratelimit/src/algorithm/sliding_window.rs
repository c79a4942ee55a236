mod ring;

use std::time::Duration;

pub use self::ring::Ring;
use self::ring::View;
use super::{Arithmetic, Ask, MAX_COUNT, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota};

/// The most sub-windows that a window has. Sixty make a minute of seconds; more hardly count better.
pub const MAX_SUB_WINDOWS: u32 = 100;

/// A sliding window put together from the counts of `n` shorter ones: those of the last `n`, the present one included,
/// and of the one before them, of which a part has gone.
///
/// That part is counted in proportion (*interpolated*), as if requests had come evenly; or as if all of them had come
/// at its end (*whole*), which never admits more than the limit in any window. One sub-window, interpolated, makes the
/// two windows of the literature: with 43 of 60 seconds gone, 17/60 of the previous window count.
///
/// Sub-windows begin at the limiter's creation. Where `n` does not divide the window they are a fraction of a
/// nanosecond longer. A quota of another window has the limit of that quota in the window of this one.
#[derive(Clone, Copy, Debug)]
pub struct SlidingWindow {
    limit: u64,
    /// n.
    sub_windows: u64,
    /// Of a sub-window, in nanoseconds.
    length: u64,
    whole: bool,
}

impl SlidingWindow {
    pub fn interpolated(quota: Quota, sub_windows: u32) -> Result<Self, BuildError> {
        Self::new(quota, sub_windows, false)
    }

    pub fn whole(quota: Quota, sub_windows: u32) -> Result<Self, BuildError> {
        Self::new(quota, sub_windows, true)
    }

    fn new(quota: Quota, sub_windows: u32, whole: bool) -> Result<Self, BuildError> {
        quota.check()?;
        quota.check_limit(MAX_COUNT)?;
        let sub_windows = u64::from(sub_windows.clamp(1, MAX_SUB_WINDOWS));
        Ok(Self {
            limit: quota.limit(),
            sub_windows,
            length: saturating_nanos(quota.window()).div_ceil(sub_windows),
            whole,
        })
    }

    /// As much of the sub-window before the last `n` as counts when so much of the present one has passed.
    fn share(&self, count: u64, passed: u64) -> u64 {
        if self.whole || count == 0 {
            return count;
        }
        let part = u128::from(count) * u128::from(self.length - passed);
        u64::try_from(part.div_ceil(u128::from(self.length))).unwrap_or(count)
    }

    /// How much of a sub-window has to pass until no more than `room` of the one before the last `n` counts; none if
    /// that takes longer than it lasts.
    fn passed(&self, count: u64, room: u64) -> Option<u64> {
        if count <= room {
            return Some(0);
        }
        if self.whole {
            return None;
        }
        let left = u128::from(room) * u128::from(self.length) / u128::from(count);
        let left = u64::try_from(left).unwrap_or(u64::MAX);
        Some(self.length - left)
    }

    fn used(&self, view: &View<'_>) -> u64 {
        view.within() + self.share(view.before(), view.passed)
    }

    /// The shortest time after which no more than `most` counts, if nothing is added.
    fn wait(&self, mut view: View<'_>, most: u64) -> Duration {
        let mut within = view.within();
        let mut waited = view.behind;
        // When n + 1 sub-windows have passed nothing of today's counts.
        for _ in 0..=self.sub_windows {
            let passed = most
                .checked_sub(within)
                .and_then(|room| self.passed(view.before(), room));
            if let Some(passed) = passed {
                waited += passed.saturating_sub(view.passed);
                break;
            }
            waited += self.length - view.passed;
            view = view.next();
            within -= view.before();
        }
        Duration::from_nanos(waited)
    }

    /// The time until nothing counts any more.
    fn reset_after(&self, view: View<'_>) -> Duration {
        let Some(age) = view.newest() else {
            return Duration::ZERO;
        };
        let left = (self.sub_windows + 1 - age) * self.length - view.passed;
        Duration::from_nanos(view.behind + left)
    }

    fn view<'a>(&self, ring: &'a Ring, nanos: u64) -> View<'a> {
        View::new(ring, self.sub_windows, self.length, nanos)
    }
}

impl Arithmetic for SlidingWindow {
    type State = Ring;
    type Moment = u64;

    fn at(&self, nanos: u64, _: u64) -> u64 {
        clamp(nanos)
    }

    fn decide(&self, ring: &Ring, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let limit = ask.limit(self.limit, MAX_COUNT);
        let view = self.view(ring, nanos);
        let free = limit.saturating_sub(self.used(&view));
        *out = match ask.granted(free) {
            Some(0) => Decision::allow(0, limit, free, self.reset_after(view)),
            Some(granted) => {
                let left = self.sub_windows * self.length + (self.length - view.passed);
                let reset_after = Duration::from_nanos(view.behind + left);
                Decision::allow(granted, limit, free - granted, reset_after)
            }
            None => {
                let most = limit.checked_sub(ask.cost);
                let retry_after = most.map(|most| self.wait(view, most));
                Decision::reject(limit, free, retry_after, self.reset_after(view))
            }
        };
    }

    fn take(&self, ring: &mut Ring, nanos: u64, _: &Ask<'_>, tokens: u64) {
        *ring.now(self.sub_windows, nanos / self.length) += tokens;
    }

    /// Puts back what was taken last: a refund mostly follows the request it is for.
    fn settle(&self, ring: &mut Ring, nanos: u64, _: &Ask<'_>, delta: i64) -> bool {
        let before = self.view(ring, nanos).total();
        let tokens = delta.unsigned_abs();
        if delta < 0 {
            ring.give_back(tokens);
        } else if delta > 0 {
            let more = tokens.min(MAX_COUNT.saturating_sub(before));
            *ring.now(self.sub_windows, nanos / self.length) += more;
        }
        self.view(ring, nanos).total() != before
    }

    fn pressure(&self, ring: &Ring, nanos: u64) -> u64 {
        self.view(ring, nanos).total()
    }
}

impl SlidingWindow {
    /// How many sub-windows are counted besides the present one.
    pub fn older(self) -> u64 {
        self.sub_windows
    }

    /// In nanoseconds.
    pub fn length(self) -> u64 {
        self.length
    }

    /// A key of which so much was counted in the sub-window of this number, and in those before it.
    pub fn counted(self, number: u64, counts: &[u64]) -> Ring {
        let most = MAX_COUNT / (self.sub_windows + 1);
        let age = |age: u64| usize::try_from(age).ok();
        let count = |older| age(older).and_then(|older| counts.get(older));
        Ring::of(number, self.sub_windows, |older| {
            count(older).map_or(0, |&count| count.min(most))
        })
    }
}

impl super::Restored for SlidingWindow {
    const KIND: u8 = 0x15;

    fn words(ring: &Ring) -> super::Words {
        ring.words()
    }

    fn restore(&self, words: &[u64]) -> Option<Ring> {
        let Some((newest, counts)) = words.split_first() else {
            return Some(Ring::default());
        };
        let total = counts
            .iter()
            .try_fold(0_u64, |sum, &count| sum.checked_add(count))?;
        let fits = u64::try_from(counts.len()) == Ok(self.sub_windows + 1)
            // The last n sub-windows admit at most MAX_COUNT, and so did the sub-window before them.
            && total <= 2 * MAX_COUNT
            && *newest <= clamp(u64::MAX) / self.length;
        fits.then(|| Ring::restored(*newest, counts))
    }
}
