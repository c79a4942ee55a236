use std::{collections::VecDeque, time::Duration};

use super::{Arithmetic, Ask, MAX_COUNT, Words, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota};

/// The longest sliding window log, in tokens.
///
/// A log takes 16 bytes per request and key in memory.
pub const MAX_LOG: u64 = 10_000;

/// The time of every request in the window, and what it cost: exactly the limit in any window.
///
/// A quota of another window has the limit of that quota, up to the longest log, in the window of this one.
#[derive(Clone, Copy, Debug)]
pub struct SlidingLog {
    limit: u64,
    /// In nanoseconds.
    window: u64,
    /// Bound on the entries of a log, and on the limit.
    longest: u64,
}

/// The requests of one key, the oldest first.
#[derive(Clone, Debug, Default)]
pub struct Log {
    /// What all that have left the log have cost. Sums wrap around; their differences do not.
    gone: u64,
    entries: VecDeque<Entry>,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    nanos: u64,
    /// What this request and all before it have cost: so any count is a search and a difference.
    sum: u64,
}

impl SlidingLog {
    pub fn new(quota: Quota, longest: u64) -> Result<Self, BuildError> {
        quota.check()?;
        quota.check_limit(longest)?;
        Ok(Self {
            limit: quota.limit(),
            window: saturating_nanos(quota.window()),
            longest,
        })
    }

    /// How many entries have left the window.
    fn left(&self, log: &Log, now: u64) -> usize {
        log.entries
            .partition_point(|entry| entry.nanos + self.window <= now)
    }

    fn used(&self, log: &Log, now: u64) -> u64 {
        log.sum().wrapping_sub(log.sum_before(self.left(log, now)))
    }

    fn until(&self, entry: Entry, now: u64) -> Duration {
        Duration::from_nanos(entry.nanos + self.window - now)
    }

    fn reset_after(&self, log: &Log, now: u64) -> Duration {
        let last = log.entries.back();
        let last = last.filter(|entry| entry.nanos + self.window > now);
        last.map_or(Duration::ZERO, |entry| self.until(*entry, now))
    }

    /// The shortest time after which no more than `most` counts, if nothing is added.
    fn wait(&self, log: &Log, now: u64, most: u64) -> Duration {
        let counts_more = |entry: &Entry| log.sum().wrapping_sub(entry.sum) > most;
        // When the first after which no more than that remains has left.
        let last = log.entries.partition_point(counts_more);
        let last = log.entries.get(last);
        last.map_or(Duration::ZERO, |entry| self.until(*entry, now))
    }

    /// Adds an entry, and drops those that have left the window.
    fn push(&self, log: &mut Log, now: u64, tokens: u64) {
        let left = self.left(log, now);
        log.gone = log.sum_before(left);
        log.entries.drain(..left);
        let sum = log.sum().wrapping_add(tokens);
        let full = log.entries.len() as u64 >= self.longest;
        match log.entries.back_mut() {
            // In one instant, or after the clock has jumped back.
            Some(last) if last.nanos >= now => last.sum = sum,
            // Debts come in any number. Those that have no entry left count from the latest on, which is longer.
            Some(last) if full => *last = Entry { nanos: now, sum },
            _ => log.entries.push_back(Entry { nanos: now, sum }),
        }
    }
}

impl Log {
    /// Of all entries, and those that are gone.
    fn sum(&self) -> u64 {
        self.entries.back().map_or(self.gone, |last| last.sum)
    }

    /// Of the first `len` entries, and those that are gone.
    fn sum_before(&self, len: usize) -> u64 {
        len.checked_sub(1)
            .and_then(|last| self.entries.get(last))
            .map_or(self.gone, |last| last.sum)
    }
}

impl Log {
    /// Takes tokens out of the latest of the entries, of which so many are used.
    fn give_back(&mut self, tokens: u64, used: u64) {
        let sum = self.sum().wrapping_sub(tokens);
        if tokens == used {
            self.entries.clear();
            self.gone = sum;
            return;
        }
        let stays = |entry: &Entry| self.sum().wrapping_sub(entry.sum) > tokens;
        let last = self.entries.partition_point(stays);
        self.entries.truncate(last + 1);
        if let Some(last) = self.entries.back_mut() {
            last.sum = sum;
        }
    }
}

impl Arithmetic for SlidingLog {
    type State = Log;
    type Moment = u64;

    fn at(&self, nanos: u64, _: u64) -> u64 {
        clamp(nanos)
    }

    fn decide(&self, log: &Log, now: u64, ask: &Ask<'_>, out: &mut Decision) {
        let limit = ask.limit(self.limit, self.longest);
        let free = limit.saturating_sub(self.used(log, now));
        *out = match ask.granted(free) {
            Some(0) => Decision::allow(0, limit, free, self.reset_after(log, now)),
            Some(granted) => {
                let latest = log.entries.back().map_or(now, |last| last.nanos.max(now));
                let reset_after = Duration::from_nanos(latest + self.window - now);
                Decision::allow(granted, limit, free - granted, reset_after)
            }
            None => {
                let most = limit.checked_sub(ask.cost);
                let retry_after = most.map(|most| self.wait(log, now, most));
                Decision::reject(limit, free, retry_after, self.reset_after(log, now))
            }
        };
    }

    fn take(&self, log: &mut Log, now: u64, _: &Ask<'_>, tokens: u64) {
        self.push(log, now, tokens);
    }

    /// Puts back what was taken last: a refund mostly follows the request it is for.
    fn settle(&self, log: &mut Log, now: u64, _: &Ask<'_>, delta: i64) -> bool {
        let used = self.used(log, now);
        let tokens = delta.unsigned_abs();
        if delta < 0 {
            log.give_back(tokens.min(used), used);
        } else if delta > 0 {
            self.push(log, now, tokens.min(MAX_COUNT.saturating_sub(used)));
        }
        self.used(log, now) != used
    }

    fn pressure(&self, log: &Log, now: u64) -> u64 {
        self.used(log, now)
    }
}

impl super::Restored for SlidingLog {
    const KIND: u8 = 0x16;

    fn words(log: &Log) -> Words {
        let mut words = Words::with_capacity(2 * log.entries.len());
        let mut before = Entry {
            nanos: 0,
            sum: log.gone,
        };
        for &entry in &log.entries {
            words.push(entry.nanos - before.nanos);
            words.push(entry.sum.wrapping_sub(before.sum));
            before = entry;
        }
        words
    }

    fn restore(&self, words: &[u64]) -> Option<Log> {
        let (pairs, []) = words.as_chunks::<2>() else {
            return None;
        };
        let mut log = Log::default();
        let mut last = Entry { nanos: 0, sum: 0 };
        for &[wait, tokens] in pairs {
            let nanos = last.nanos.checked_add(wait)?;
            let sum = last.sum.checked_add(tokens)?;
            last = Entry { nanos, sum };
            log.entries.push_back(last);
        }
        let fits = log.entries.len() as u64 <= self.longest && last.nanos <= clamp(u64::MAX);
        fits.then_some(log)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::tests::ask;

    /// A response that streams can be charged for each of its pieces.
    #[test]
    fn debts_without_end_do_not_make_a_log_without_end() {
        let log = SlidingLog::new(Quota::per_hour(10), MAX_LOG).unwrap();
        let (mut state, ask) = (Log::default(), ask(1));
        let hour = 3_600_000_000_000;
        for now in 0..3 * MAX_LOG {
            assert!(log.settle(&mut state, now, &ask, 1));
        }
        assert_eq!(state.entries.len() as u64, MAX_LOG);
        // None of them is forgotten before its time.
        let (last, mut out) = (3 * MAX_LOG - 1, Decision::default());
        for (now, used) in [(last, 3 * MAX_LOG), (hour + 4, 3 * MAX_LOG - 5)] {
            assert_eq!(log.used(&state, now), used);
        }
        log.decide(&state, last, &ask, &mut out);
        let wait = saturating_nanos(out.retry_after.unwrap());
        assert_eq!(last + wait, last + hour);
        assert_eq!(log.used(&state, last + wait), 0);
        log.decide(&state, last + wait - 1, &ask, &mut out);
        assert!(!out.allowed);
    }

    /// What is put back leaves nothing behind that counts for longer.
    #[test]
    fn a_request_that_is_put_back_is_as_if_it_had_not_been() {
        let log = SlidingLog::new(Quota::per_second(10), MAX_LOG).unwrap();
        let look = |state: &Log, now| {
            let mut out = Decision::default();
            log.decide(state, now, &ask(0), &mut out);
            out
        };
        let mut state = Log::default();
        log.take(&mut state, 100, &ask(1), 3);
        let before = look(&state, 300);
        log.take(&mut state, 200, &ask(1), 2);
        assert!(log.settle(&mut state, 300, &ask(2), -2));
        assert_eq!(look(&state, 300), before);
        assert!(log.settle(&mut state, 300, &ask(3), -3));
        assert_eq!(look(&state, 300), look(&Log::default(), 300));
    }
}
