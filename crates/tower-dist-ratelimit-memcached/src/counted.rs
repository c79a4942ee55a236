use std::time::Duration;

use smallvec::SmallVec;
use tower_dist_ratelimit::{
    Algorithm, BuildError, Decision, Policy, Quota,
    algorithm::{Arithmetic, Ask, Counter, FirstHit, FixedWindow, SlidingWindow},
};

use super::{
    clock::{SKEW, SLACK, Time},
    key::{Keys, layout},
    request::Ttl,
    slot::At,
};

/// The most that a counter counts in a window. Reservations and debts come on top; the server's counters wrap at 2⁶⁴.
pub(super) const MOST: u64 = 1 << 48;

/// The longest window whose end can be told to the server in seconds from its beginning.
const LONGEST_FIRST_HIT: Duration = Duration::from_secs(30 * 86_400);

const SECOND: u64 = 1_000_000_000;

/// A policy that stands alone and is counted by the server, each window in an item of its own.
pub(super) struct Counted {
    pub(super) keys: Keys,
    quota: Quota,
    windows: Windows,
}

/// The windows of a policy, as counters.
enum Windows {
    /// One item, that ends when the window does. In seconds.
    FirstHit {
        arithmetic: FirstHit,
        seconds: u64,
    },
    Fixed(FixedWindow),
    Sliding(SlidingWindow),
}

/// What has been counted, and where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts<'a> {
    /// Of the present window, without what is asked now.
    pub(super) present: u64,
    /// Of those before it, the newest first.
    pub(super) older: &'a [u64],
    /// The present window's.
    pub(super) number: Option<u64>,
    /// Of the present window's item, as the server says, in seconds.
    pub(super) ttl: Option<i64>,
}

impl Counted {
    /// None if it is not windows that counters can count.
    ///
    /// # Errors
    ///
    /// A quota that cannot be counted.
    pub(super) fn new(prefix: &str, policy: &Policy) -> Result<Option<Self>, BuildError> {
        let quota = policy.quota();
        let sliding = |windows: SlidingWindow| Some(Windows::Sliding(windows));
        let windows = match policy.algorithm() {
            Algorithm::FixedWindowFromFirstRequest => {
                let window = quota.window();
                let seconds = window.as_secs();
                // By the server's clock, which has no parts of seconds; shorter ones could not be told from the next.
                let fits = window.subsec_nanos() == 0 && seconds >= 2 && window < LONGEST_FIRST_HIT;
                let arithmetic = FirstHit::new(quota)?;
                fits.then_some(Windows::FirstHit {
                    arithmetic,
                    seconds,
                })
            }
            Algorithm::FixedWindow { staggered } => {
                Some(Windows::Fixed(FixedWindow::new(quota, staggered)?))
            }
            Algorithm::SlidingWindow => sliding(SlidingWindow::interpolated(quota, 1)?),
            Algorithm::SlidingWindowBuckets { count } => {
                sliding(SlidingWindow::interpolated(quota, count)?)
            }
            Algorithm::SlidingWindowStrict { count } => {
                sliding(SlidingWindow::whole(quota, count)?)
            }
            _ => None,
        };
        let Some(windows) = windows else {
            return Ok(None);
        };
        if quota.limit() > MOST {
            let bound = format_args!("at most {MOST} with windows on Memcached");
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        Ok(Some(Self {
            keys: Keys::new(prefix, &layout(policy).to_uppercase(), policy.name()),
            quota,
            windows,
        }))
    }

    /// The limit that holds by this quota.
    pub(super) fn limit(&self, quota: Option<Quota>) -> u64 {
        quota.unwrap_or(self.quota).limit().min(MOST)
    }

    /// How many windows before the present one count.
    pub(super) fn older(&self) -> u64 {
        match &self.windows {
            Windows::Sliding(windows) => windows.older(),
            _ => 0,
        }
    }

    /// The number of the present window, if windows have numbers.
    pub(super) fn number(&self, at: At) -> Option<u64> {
        match &self.windows {
            Windows::FirstHit { .. } => None,
            Windows::Fixed(window) => Some(window.number(window.at(at.nanos, at.key))),
            Windows::Sliding(windows) => Some(windows.at(at.nanos, at.key) / windows.length()),
        }
    }

    /// How long a window counts from its first request on, and is kept.
    pub(super) fn ttl(&self, time: Time) -> Ttl {
        let window = self.quota.window();
        let seconds = match &self.windows {
            // One more, so that it is not shorter when it begins just before a tick.
            Windows::FirstHit { seconds, .. } => seconds + 1,
            _ => {
                let span = window.as_secs().saturating_add(1);
                let span = match self.older() {
                    0 => span,
                    older => span.saturating_add(span.div_ceil(older)),
                };
                span.saturating_add(window.min(SKEW).as_secs() + SLACK)
            }
        };
        Ttl::seconds(seconds, time.unix)
    }

    /// The whole window that a first request begins, if its end is the server's affair.
    pub(super) fn fixed_window_from_first_request(&self) -> Option<Duration> {
        match &self.windows {
            Windows::FirstHit { seconds, .. } => Some(Duration::from_secs(*seconds)),
            _ => None,
        }
    }

    /// Whether a window that the server keeps for so long, in seconds, ends when one of ours can. What somebody else has written
    /// there may stay for ever.
    pub(super) fn ends(&self, ttl: Option<i64>) -> bool {
        let Windows::FirstHit { seconds, .. } = self.windows else {
            return true;
        };
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        ttl.is_some_and(|ttl| ttl <= seconds + 1)
    }

    pub(super) fn decide(&self, counts: Counts<'_>, at: At, ask: &Ask<'_>, out: &mut Decision) {
        match &self.windows {
            Windows::Fixed(window) => {
                let state = window.counted(counts.number.unwrap_or(0), counts.present);
                Arithmetic::decide(window, &state, window.at(at.nanos, at.key), ask, out);
            }
            Windows::Sliding(windows) => {
                let mut all: SmallVec<[u64; 8]> = SmallVec::new();
                all.push(counts.present);
                all.extend_from_slice(counts.older);
                let ring = windows.counted(counts.number.unwrap_or(0), &all);
                Arithmetic::decide(windows, &ring, windows.at(at.nanos, at.key), ask, out);
            }
            Windows::FirstHit { arithmetic, .. } => {
                let seconds = counts.ttl.and_then(|ttl| u64::try_from(ttl).ok());
                let left = seconds.map(|seconds| seconds.saturating_mul(SECOND));
                let end = at.nanos.saturating_add(left.unwrap_or(0));
                let state = Counter::until(end, counts.present);
                let now = Arithmetic::at(arithmetic, at.nanos, at.key);
                Arithmetic::decide(arithmetic, &state, now, ask, out);
                // The server says when the window ends, also of one that begins now.
                if let Some(left) = left.map(Duration::from_nanos) {
                    if !out.reset_after.is_zero() {
                        out.reset_after = left;
                    }
                    if !out.allowed && out.retry_after.is_some() {
                        out.retry_after = Some(left);
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(policy: Policy) -> Option<Counted> {
        Counted::new("rl", &policy).unwrap()
    }

    fn of(seconds: u64) -> Policy {
        Policy::new("p", Quota::new(5, Duration::from_secs(seconds)))
    }

    #[test]
    fn windows_from_the_first_hit_are_counted_if_the_server_can_be_told_their_end() {
        let month = LONGEST_FIRST_HIT.as_secs();
        for (seconds, can) in [(1, false), (2, true), (month - 1, true), (month, false)] {
            assert_eq!(
                counted(of(seconds).fixed_window_from_first_request()).is_some(),
                can,
                "{seconds}"
            );
        }
    }

    #[test]
    fn windows_are_kept_for_as_long_as_they_count_by_clocks_that_differ() {
        let time = Time { nanos: 0, unix: 0 };
        for (policy, windows) in [
            (of(60).fixed_window(), 61),
            (of(60).sliding_window(), 61 + 61),
            (of(60).sliding_window_buckets(4), 61 + 16),
        ] {
            let kept = windows + SKEW.as_secs() + SLACK;
            let ttl = counted(policy).unwrap().ttl(time);
            assert_eq!(ttl, Ttl::seconds(kept, 0));
        }
    }

    #[test]
    fn a_window_of_which_all_was_put_back_has_nothing_to_reset() {
        let rule = counted(of(60).fixed_window_from_first_request()).unwrap();
        let counts = Counts {
            present: 0,
            older: &[],
            number: None,
            ttl: Some(30),
        };
        let mut out = Decision::default();
        let at = At { nanos: 0, key: 0 };
        rule.decide(counts, at, &Ask::own(0), &mut out);
        assert_eq!((out.remaining, out.reset_after), (5, Duration::ZERO));
        rule.decide(counts, at, &Ask::own(1), &mut out);
        assert_eq!(out.reset_after, Duration::from_secs(30));
    }
}
