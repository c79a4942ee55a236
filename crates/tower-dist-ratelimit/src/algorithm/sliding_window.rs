use std::time::Duration;

use super::{Arithmetic, MAX_COUNT, Now, Take, Words, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota};

/// Maximum number of sub-windows in a window. Sixty split a minute into seconds. A larger number hardly improves the
/// accuracy.
pub(crate) const MAX_SUB_WINDOWS: u32 = 100;

/// A sliding window of `n` sub-windows. It keeps `n + 1` counts: one for each of the last `n` sub-windows, including
/// the present one, and one for the sub-window before them. That oldest sub-window is usually partly outside the
/// window.
///
/// By default, the oldest sub-window counts in proportion to its time inside the window. If `whole` is set, it counts
/// in full, so usually no window admits more than the limit. With `n = 1` and without `whole`, this is the sliding
/// window of the literature. For example, 43 seconds into a minute, 17/60 of the previous minute's tokens still count.
///
/// The first sub-window begins at time 0. If `n` does not divide the window, a sub-window is a fraction of a
/// nanosecond longer than `window / n`. If a request brings its own quota, only the quota's limit applies; the window
/// keeps its length.
///
/// The first word is the number of the newest sub-window. Then come `n + 1` counts, with the count of sub-window `i` at
/// index `i mod (n + 1)`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingWindow {
    limit: u64,
    /// The number n of sub-windows in the window.
    sub_windows: u64,
    /// The length of a sub-window, in nanoseconds.
    length: u64,
    whole: bool,
}

/// The counts of a key, read at one time.
#[derive(Clone, Copy, Debug)]
struct WindowView<'a> {
    newest: u64,
    counts: &'a [u64],
    /// The index of the newest sub-window's count.
    place: usize,
    /// The number n of sub-windows in the window.
    sub_windows: u64,
    /// The number of the present sub-window, or of the newest one if that is later.
    number: u64,
    /// Nanoseconds since sub-window `number` began, or 0 before its beginning.
    passed: u64,
    /// Nanoseconds until sub-window `number` begins, or 0 if it has begun.
    behind: u64,
}

impl WindowView<'_> {
    /// Returns the count of sub-window `number - age`, or 0 if no count is stored for it.
    fn count(&self, age: u64) -> u64 {
        let len = self.counts.len();
        let back = age.checked_sub(self.number - self.newest);
        match back.and_then(|back| usize::try_from(back).ok()) {
            Some(back) if back >= len => 0,
            Some(back) if back > self.place => self.counts[self.place + len - back],
            Some(back) => self.counts[self.place - back],
            None => 0,
        }
    }

    /// Returns the count of the last `sub_windows` sub-windows, the present one included.
    fn within(&self) -> u64 {
        (0..self.sub_windows).map(|age| self.count(age)).sum()
    }

    /// Returns the count of the oldest sub-window.
    fn before(&self) -> u64 {
        self.count(self.sub_windows)
    }

    fn total(&self) -> u64 {
        self.within() + self.before()
    }
}

impl SlidingWindow {
    /// # Errors
    ///
    /// An invalid quota, or a limit above 2⁶¹.
    pub(crate) fn new(quota: Quota, sub_windows: u32, whole: bool) -> Result<Self, BuildError> {
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

    /// Returns how many of the oldest sub-window's `count` tokens still count when `passed` nanoseconds of the present
    /// sub-window are over, rounded up. If `whole` is set, all of them count.
    fn share(&self, count: u64, passed: u64) -> u64 {
        if self.whole || count == 0 {
            return count;
        }
        let part = u128::from(count) * u128::from(self.length - passed);
        u64::try_from(part.div_ceil(u128::from(self.length))).unwrap_or(count)
    }

    /// Returns the nanoseconds from the beginning of the present sub-window until at most `room` of the oldest
    /// sub-window's `count` tokens still count. Returns `None` if `whole` is set and `count` is above `room`.
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

    /// Returns the shortest time after which at most `most` tokens count, if no tokens are added.
    fn wait(&self, mut view: WindowView<'_>, most: u64) -> Duration {
        let mut within = view.within();
        let mut waited = view.behind;
        // After `sub_windows + 1` sub-windows, no count of `view` is in the window.
        for _ in 0..=self.sub_windows {
            let passed = most
                .checked_sub(within)
                .and_then(|room| self.passed(view.before(), room));
            if let Some(passed) = passed {
                waited += passed.saturating_sub(view.passed);
                break;
            }
            waited += self.length - view.passed;
            (view.number, view.passed) = (view.number + 1, 0);
            within -= view.before();
        }
        Duration::from_nanos(waited)
    }

    /// Returns the time until no tokens count, if `granted` tokens are added now.
    fn reset_after(&self, view: WindowView<'_>, granted: u64) -> Duration {
        let counts = |&age: &u64| view.count(age) > 0;
        let newest = match granted {
            0 => (0..=self.sub_windows).find(counts),
            _ => Some(0),
        };
        newest.map_or(Duration::ZERO, |age| {
            let left = (self.sub_windows + 1 - age) * self.length - view.passed;
            Duration::from_nanos(view.behind + left)
        })
    }

    fn view<'a>(&self, words: &'a [u64], now: Now) -> WindowView<'a> {
        let (&newest, counts) = words.split_first().unwrap_or((&0, &[]));
        let nanos = clamp(now.nanos);
        let number = newest.max(nanos / self.length);
        let start = number * self.length;
        WindowView {
            newest,
            counts,
            place: place(newest, counts.len() as u64),
            sub_windows: self.sub_windows,
            number,
            passed: nanos.saturating_sub(start),
            behind: start.saturating_sub(nanos),
        }
    }

    /// Adds tokens to the present sub-window, or to the newest one if the clock has jumped back.
    fn add(&self, words: &mut Words, now: Now, tokens: u64) {
        let len = self.sub_windows + 1;
        if words.is_empty() {
            *words = Words::from_elem(0, place(len, u64::MAX) + 1);
        }
        let (newest, counts) = words.split_at_mut(1);
        let number = newest[0].max(clamp(now.nanos) / self.length);
        let passed = (number - newest[0]).min(len);
        newest[0] = number;
        for age in 0..passed {
            counts[place(number - age, len)] = 0;
        }
        counts[place(number, len)] += tokens;
    }
}

impl Arithmetic for SlidingWindow {
    fn decide(&self, words: &[u64], now: Now, take: &Take<'_>) -> Decision {
        let limit = take.limit(self.limit, MAX_COUNT);
        let view = self.view(words, now);
        let used = view.within() + self.share(view.before(), view.passed);
        take.decision(
            limit,
            limit.saturating_sub(used),
            limit,
            |granted| self.reset_after(view, granted),
            || self.wait(view, limit - take.cost),
        )
    }

    fn take(&self, words: &mut Words, now: Now, _: &Take<'_>, tokens: u64) {
        self.add(words, now, tokens);
    }

    /// Refunds the newest tokens first, because a refund usually comes soon after its request.
    fn settle(&self, words: &mut Words, now: Now, _: &Take<'_>, delta: i64) -> bool {
        let before = self.pressure(words, now);
        let mut tokens = delta.unsigned_abs();
        if delta > 0 {
            self.add(words, now, tokens.min(MAX_COUNT.saturating_sub(before)));
        } else if let Some((newest, counts)) = words.split_first_mut() {
            let len = counts.len() as u64;
            for age in 0..len.min(*newest + 1) {
                let count = &mut counts[place(*newest - age, len)];
                let back = tokens.min(*count);
                *count -= back;
                tokens -= back;
            }
        }
        self.pressure(words, now) != before
    }

    fn pressure(&self, words: &[u64], now: Now) -> u64 {
        self.view(words, now).total()
    }

    fn decode(&self, words: Words) -> Option<Words> {
        let Some((newest, counts)) = words.split_first() else {
            return Some(words);
        };
        let sum = counts.iter().try_fold(0_u64, |sum, &n| sum.checked_add(n));
        let fits = counts.len() as u64 == self.sub_windows + 1
            // The last n sub-windows hold at most MAX_COUNT tokens, and so does the sub-window before them.
            && sum.is_some_and(|total| total <= 2 * MAX_COUNT)
            && *newest <= clamp(u64::MAX) / self.length;
        fits.then_some(words)
    }
}

/// Returns the index of a sub-window among `len` counts.
fn place(number: u64, len: u64) -> usize {
    usize::try_from(number.checked_rem(len).unwrap_or(0)).unwrap_or(usize::MAX)
}
