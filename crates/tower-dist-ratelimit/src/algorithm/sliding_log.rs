use std::time::Duration;

use super::{Arithmetic, MAX_COUNT, Now, Take, Words, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota};

/// The maximum limit of a sliding window log, in tokens. A log is a list of entries, each usually of one request. In
/// [`Memory`](crate::backend::Memory) and in a [`Limit`](crate::arithmetic::Limit), new tokens join the last entry
/// while `MAX_LOG` entries are inside the key's window.
///
/// In `Memory` and `Limit`, a correction that raises a request's cost normally adds an entry. If the window already has
/// `MAX_LOG` entries, the correction's tokens join the last entry instead. If the correction is later than this entry,
/// the entry takes the time of the correction.
///
/// A log usually takes 16 to 37 bytes of memory per request in a key's window: it grows by doubling, and drops old
/// requests in batches.
pub const MAX_LOG: u64 = 10_000;

/// A sliding window log: it keeps the times and the granted tokens of requests. It usually counts the tokens that were
/// taken less than a window's length ago.
///
/// The *sum* at a request is the running total of the tokens taken up to and including it, modulo 2⁶⁴. The used tokens
/// are the last sum minus a sum that a binary search finds. The first word is the sum before the oldest request. Then
/// each request has two words, the oldest first: its time in nanoseconds, and its sum. Some requests, such as those of
/// one nanosecond, share their two words.
///
/// A request's own quota changes only the limit, which is at most `longest`; the window keeps its length.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SlidingLog {
    limit: u64,
    /// Length of the window, in nanoseconds.
    window: u64,
    /// The maximum limit. Also, `push` adds new tokens to the last entry while this many entries are in the window.
    longest: u64,
}

/// The words of a log.
#[derive(Clone, Copy)]
struct Log<'a> {
    /// The sum of the tokens taken before the oldest entry, counted from an arbitrary start. Sums wrap around.
    gone: u64,
    /// The time of each entry, and the sum of the tokens taken up to and including it, from the same start.
    entries: &'a [[u64; 2]],
}

impl<'a> Log<'a> {
    fn of(words: &'a [u64]) -> Self {
        let (&gone, entries) = words.split_first().unwrap_or((&0, &[]));
        Self {
            gone,
            entries: entries.as_chunks().0,
        }
    }

    /// Returns the sum at the last of the log's first `len` entries. If `len` is 0, returns the sum before the oldest
    /// entry.
    fn sum_of(self, len: usize) -> u64 {
        let last = len.checked_sub(1).and_then(|last| self.entries.get(last));
        last.map_or(self.gone, |last| last[1])
    }

    fn sum(self) -> u64 {
        self.sum_of(self.entries.len())
    }

    /// Returns a predicate: whether the entries after an entry hold more than `tokens` tokens together.
    fn follow_more_than(self, tokens: u64) -> impl Fn(&[u64; 2]) -> bool {
        let sum = self.sum();
        move |entry| sum.wrapping_sub(entry[1]) > tokens
    }
}

impl SlidingLog {
    /// # Errors
    ///
    /// An invalid quota, or a limit above `longest`.
    pub(crate) fn new(quota: Quota, longest: u64) -> Result<Self, BuildError> {
        quota.check()?;
        quota.check_limit(longest)?;
        Ok(Self {
            limit: quota.limit(),
            window: saturating_nanos(quota.window()),
            longest,
        })
    }

    /// Returns the number of entries that have left the window.
    fn left(&self, log: Log<'_>, now: u64) -> usize {
        log.entries
            .partition_point(|entry| entry[0] + self.window <= now)
    }

    fn used(&self, log: Log<'_>, now: u64) -> u64 {
        log.sum().wrapping_sub(log.sum_of(self.left(log, now)))
    }

    /// Returns the time until a request made at `nanos` leaves the window.
    fn time_until_expiry(&self, nanos: u64, now: u64) -> Duration {
        Duration::from_nanos((nanos + self.window).saturating_sub(now))
    }

    fn push(&self, words: &mut Words, now: u64, tokens: u64) {
        let log = Log::of(words);
        let (left, len) = (self.left(log, now), log.entries.len());
        let sum = log.sum().wrapping_add(tokens);
        let is_full = (len - left) as u64 >= self.longest;
        match &mut words[..] {
            // If the last entry's time is `now` or later, for example because the clock jumped back, the tokens join
            // that entry.
            [.., last, before] if len > 0 && *last >= now => *before = sum,
            // An extra charge can meet a full log. It joins the last entry, whose time becomes `now`, so that no
            // token is forgotten too early.
            [.., last, before] if is_full => (*last, *before) = (now, sum),
            _ => {
                if words.is_empty() {
                    words.push(0);
                } else if left * 8 >= len {
                    // Drops old requests in batches, because each drop moves all other words. The sum before the
                    // oldest remaining request becomes the first word.
                    words.drain(..2 * left);
                }
                words.extend_from_slice(&[now, sum]);
            }
        }
    }
}

impl Arithmetic for SlidingLog {
    fn decide(&self, words: &[u64], now: Now, take: &Take<'_>) -> Decision {
        let (log, now) = (Log::of(words), clamp(now.nanos));
        let limit = take.limit(self.limit, self.longest);
        let reset_after = |granted| match (granted, log.entries.last()) {
            (0, None) => Duration::ZERO,
            (0, Some(last)) => self.time_until_expiry(last[0], now),
            (_, last) => self.time_until_expiry(last.map_or(now, |last| last[0].max(now)), now),
        };
        // Finds the first entry whose later entries leave room for the cost. The request can pass when that entry
        // leaves the window.
        let retry_after = || {
            let follow_more = log.follow_more_than(limit - take.cost);
            let last = log.entries.partition_point(follow_more);
            let last = log.entries.get(last);
            last.map_or(Duration::ZERO, |last| self.time_until_expiry(last[0], now))
        };
        let free = limit.saturating_sub(self.used(log, now));
        take.decision(limit, free, limit, reset_after, retry_after)
    }

    fn take(&self, words: &mut Words, now: Now, _: &Take<'_>, tokens: u64) {
        self.push(words, clamp(now.nanos), tokens);
    }

    /// Refunds the newest tokens first, because a refund usually comes soon after its request.
    fn settle(&self, words: &mut Words, now: Now, _: &Take<'_>, delta: i64) -> bool {
        let used = self.pressure(words, now);
        let tokens = delta.unsigned_abs();
        if delta > 0 {
            let tokens = tokens.min(MAX_COUNT.saturating_sub(used));
            self.push(words, clamp(now.nanos), tokens);
        } else if tokens >= used {
            words.clear();
        } else {
            let log = Log::of(words);
            let sum = log.sum().wrapping_sub(tokens);
            let last = log.entries.partition_point(log.follow_more_than(tokens));
            words.truncate(2 * last + 3);
            words[2 * last + 2] = sum;
        }
        self.pressure(words, now) != used
    }

    fn pressure(&self, words: &[u64], now: Now) -> u64 {
        self.used(Log::of(words), clamp(now.nanos))
    }

    /// Stores differences, which need fewer bytes: for each entry, the time since the previous entry (for the oldest
    /// one, since the epoch) and its tokens.
    fn encode(&self, words: &[u64]) -> Words {
        let log = Log::of(words);
        let first = [0, log.gone];
        let before = std::iter::once(&first).chain(log.entries);
        let pairs = log.entries.iter().zip(before);
        pairs
            .flat_map(|(entry, before)| [entry[0] - before[0], entry[1].wrapping_sub(before[1])])
            .collect()
    }

    fn decode(&self, mut words: Words) -> Option<Words> {
        let (mut nanos, mut sum) = (0_u64, 0_u64);
        for pair in words.chunks_mut(2) {
            let [wait, tokens] = pair else { return None };
            nanos = nanos.checked_add(*wait)?;
            sum = sum.checked_add(*tokens)?;
            (*wait, *tokens) = (nanos, sum);
        }
        // An upper bound of the number of entries that `push` keeps, including entries that have left the window.
        let most = self.longest + self.longest / 7 + 1;
        let fits = (words.len() as u64) <= 2 * most && nanos <= clamp(u64::MAX);
        if !words.is_empty() {
            words.insert(0, 0);
        }
        fits.then_some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arithmetic::tests::take;

    fn at(nanos: u64) -> Now {
        Now { nanos, key: 0 }
    }

    /// A response that streams can be charged for each of its pieces.
    #[test]
    fn debts_without_end_do_not_make_a_log_without_end() {
        let log = SlidingLog::new(Quota::per_hour(10), MAX_LOG).unwrap();
        let (mut state, take) = (Words::new(), take(1));
        let hour = 3_600_000_000_000;
        for now in 0..3 * MAX_LOG {
            assert!(log.settle(&mut state, at(now), &take, 1));
        }
        assert_eq!(Log::of(&state).entries.len() as u64, MAX_LOG);
        // None of them is forgotten before its time.
        let last = 3 * MAX_LOG - 1;
        for (now, used) in [(last, 3 * MAX_LOG), (hour + 4, 3 * MAX_LOG - 5)] {
            assert_eq!(log.pressure(&state, at(now)), used);
        }
        let wait = log.decide(&state, at(last), &take).retry_after;
        let wait = saturating_nanos(wait.unwrap());
        assert_eq!(last + wait, last + hour);
        assert_eq!(log.pressure(&state, at(last + wait)), 0);
        assert!(!log.decide(&state, at(last + wait - 1), &take).allowed);
    }

    #[test]
    fn a_log_holds_few_requests_that_have_left_the_window_and_can_be_read_again() {
        let log = SlidingLog::new(Quota::new(100, Duration::from_nanos(100)), 100).unwrap();
        let mut state = Words::new();
        for now in 0..10_000 {
            let decision = log.decide(&state, at(now), &take(1));
            assert!(decision.allowed);
            assert_eq!(decision.remaining, 99 - now.min(99), "{now}");
            log.take(&mut state, at(now), &take(1), 1);
            assert!(Log::of(&state).entries.len() <= 115, "{now}");
        }
        let read = log.decode(log.encode(&state)).unwrap();
        for now in 9_999..10_110 {
            let decide = |state: &Words| log.decide(state, at(now), &take(1));
            assert_eq!(decide(&read), decide(&state));
        }
    }

    /// A refund leaves nothing behind that counts for longer.
    #[test]
    fn a_refunded_request_is_as_if_it_had_not_been() {
        let log = SlidingLog::new(Quota::per_second(10), MAX_LOG).unwrap();
        let look = |state: &Words| log.decide(state, at(300), &take(0));
        let mut state = Words::new();
        log.take(&mut state, at(100), &take(1), 3);
        let before = look(&state);
        log.take(&mut state, at(200), &take(1), 2);
        assert!(log.settle(&mut state, at(300), &take(2), -2));
        assert_eq!(look(&state), before);
        assert!(log.settle(&mut state, at(300), &take(3), -3));
        assert_eq!(look(&state), look(&Words::new()));
    }
}
