use std::time::Duration;

use tower_dist_ratelimit::{
    Algorithm, BuildError, Decision, Policy, Quota,
    arithmetic::{Limit, decide_count, saturating_nanos},
    backend::{
        Charge,
        toolkit::{Keys, SKEW, Tag, tag_bits},
    },
};

use super::{
    clock::{SLACK, unix},
    request::Ttl,
};

/// Maximum limit of a window. A count can exceed it through extra charges, and through tokens that a charge has added
/// and not yet taken back. The server's counters wrap at 2⁶⁴.
pub(super) const MOST: u64 = 1 << 48;

/// Exclusive upper bound of the length of a counter's window that begins with the first request. The time to live of
/// such a window's item is a second longer than the window. The server reads a time to live above 30 days as a date.
const LONGEST_FROM_FIRST: Duration = Duration::from_secs(30 * 86_400);

/// A policy that is decided alone, and whose fixed windows are counters. Each window of a key is a Memcached item.
pub(super) struct CounterPolicy {
    pub(super) keys: Keys,
    quota: Quota,
    windows: Windows,
}

/// When a policy's windows begin.
#[derive(Clone, Copy)]
enum Windows {
    /// When a key's first tokens are taken. The field is the length of a window in seconds. The window ends when the
    /// server expires the item.
    FromFirst(u64),
    /// At multiples of the window's length. If `staggered`, each key adds its own offset.
    Aligned { staggered: bool },
}

impl CounterPolicy {
    /// Returns `None` if the policy has no fixed windows, or windows that a counter cannot count.
    ///
    /// # Errors
    ///
    /// A quota that is invalid for the algorithm, or too large for a counter.
    pub(super) fn new(prefix: &str, policy: &Policy) -> Result<Option<Self>, BuildError> {
        let (quota, algorithm) = (policy.quota(), policy.algorithm());
        let window = quota.window();
        let (windows, letter) = match algorithm {
            Algorithm::FixedWindowFromFirstRequest => {
                let seconds = window.as_secs();
                // The server expires items in whole seconds, so it can only end windows of whole seconds. For a window
                // of 1 s, a tick of the server's clock is too coarse.
                let fits =
                    window.subsec_nanos() == 0 && seconds >= 2 && window < LONGEST_FROM_FIRST;
                if !fits {
                    return Ok(None);
                }
                (Windows::FromFirst(seconds), 'H')
            }
            Algorithm::FixedWindow { staggered } => {
                let letter = if staggered { 'P' } else { 'F' };
                (Windows::Aligned { staggered }, letter)
            }
            _ => return Ok(None),
        };
        Limit::new(algorithm, quota)?;
        if quota.limit() > MOST {
            let bound = format!("at most {MOST} with fixed windows on Memcached");
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
        let layout = format!("{letter}1.{}", window.as_nanos());
        Ok(Some(Self {
            keys: Keys::new(prefix, &layout, policy.name()),
            quota,
            windows,
        }))
    }

    /// Returns the limit of `quota`, or of the policy's own quota if `quota` is `None`. The result is at most [`MOST`],
    /// and 0 if the burst is 0.
    pub(super) fn limit(&self, quota: Option<Quota>) -> u64 {
        let quota = quota.unwrap_or(self.quota);
        match quota.burst_size() {
            0 => 0,
            _ => quota.limit().min(MOST),
        }
    }

    /// Returns the number of the present window and its remaining time. `None` if windows begin at the first request.
    pub(super) fn present(&self, nanos: u64, tag: &Tag) -> Option<(u64, Duration)> {
        let Windows::Aligned { staggered } = self.windows else {
            return None;
        };
        let window = saturating_nanos(self.quota.window());
        let phase = match staggered {
            true => (u128::from(tag_bits(tag)) * u128::from(window)) >> 64,
            false => 0,
        };
        let nanos = nanos.saturating_add(u64::try_from(phase).unwrap_or(0));
        let left = window - nanos % window;
        Some((nanos / window, Duration::from_nanos(left)))
    }

    /// Returns the time to live of a window's item that is created at `nanos`.
    pub(super) fn ttl(&self, nanos: u64) -> Ttl {
        let window = self.quota.window();
        let seconds = match self.windows {
            // One second more, for a window that begins just before a tick of the server's clock.
            Windows::FromFirst(seconds) => seconds + 1,
            Windows::Aligned { .. } => {
                let span = window.as_secs().saturating_add(1);
                span.saturating_add(window.min(SKEW).as_secs() + SLACK)
            }
        };
        Ttl::seconds(seconds, unix(nanos))
    }

    /// Returns the length of the windows, if the server ends them. `None` for aligned windows.
    pub(super) fn server_window(&self) -> Option<Duration> {
        match self.windows {
            Windows::FromFirst(seconds) => Some(Duration::from_secs(seconds)),
            Windows::Aligned { .. } => None,
        }
    }

    /// Returns whether an item with this time to live can be a window of this policy. An item of another program can
    /// live longer, or forever. Always `true` for aligned windows.
    pub(super) fn ends(&self, ttl: Option<i64>) -> bool {
        let Windows::FromFirst(seconds) = self.windows else {
            return true;
        };
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        ttl.is_some_and(|ttl| ttl <= seconds + 1)
    }

    /// Decides on a charge. `count` is the count of window `number` before the charge, and `ttl` is the item's time to
    /// live in seconds.
    pub(super) fn decide(
        &self,
        count: u64,
        number: Option<u64>,
        ttl: Option<i64>,
        (nanos, tag): (u64, &Tag),
        charge: &Charge<'_>,
    ) -> Decision {
        let ttl = ttl.and_then(|ttl| u64::try_from(ttl).ok());
        let (count, left) = match self.present(nanos, tag) {
            Some((present, left)) if Some(present) <= number => {
                // If the charged window is later than the present one, the clock has jumped back. The charged window
                // then ends `number - present` windows after the present one.
                let ahead = number.unwrap_or(present) - present;
                let ahead = u32::try_from(ahead).unwrap_or(u32::MAX);
                let ahead = self.quota.window().saturating_mul(ahead);
                (count, left.saturating_add(ahead))
            }
            // The charged window has ended.
            Some((_, left)) => (0, left),
            // The server ends the window, so `ttl` is the rest of the window. Without `ttl`, the rest is the length of
            // a window.
            None => (count, ttl.map_or(self.quota.window(), Duration::from_secs)),
        };
        let limit = self.limit(charge.quota);
        let up_to = charge.up_to.min(limit).max(charge.cost);
        decide_count(limit, count, left, &charge.up_to(up_to))
    }
}

#[cfg(test)]
mod tests {
    use tower_dist_ratelimit::backend::{PolicyId, toolkit::tag};

    use super::*;

    fn counted(policy: Policy) -> Option<CounterPolicy> {
        CounterPolicy::new("rl", &policy).unwrap()
    }

    fn of(seconds: u64) -> Policy {
        Policy::new("p", Quota::new(5, Duration::from_secs(seconds)))
    }

    #[test]
    fn windows_from_the_first_request_are_counters_if_the_server_can_end_them() {
        let month = LONGEST_FROM_FIRST.as_secs();
        for (seconds, can) in [(1, false), (2, true), (month - 1, true), (month, false)] {
            let policy = of(seconds).fixed_window_from_first_request();
            assert_eq!(counted(policy).is_some(), can, "{seconds}");
        }
    }

    #[test]
    fn windows_are_kept_for_as_long_as_they_count_on_any_machine() {
        let kept = 61 + SKEW.as_secs() + SLACK;
        let ttl = counted(of(60).fixed_window()).unwrap().ttl(0);
        assert_eq!(ttl, Ttl::seconds(kept, unix(0)));
    }

    #[test]
    fn a_window_whose_tokens_were_all_refunded_resets_immediately() {
        let rule = counted(of(60).fixed_window_from_first_request()).unwrap();
        let decide = |cost| {
            let charge = Charge::new(PolicyId::new(0), b"", cost);
            rule.decide(0, None, Some(30), (0, &tag(b"")), &charge)
        };
        assert_eq!(
            (decide(0).remaining, decide(0).reset_after),
            (5, Duration::ZERO)
        );
        assert_eq!(decide(1).reset_after, Duration::from_secs(30));
    }

    /// A counter decides as the state of the shared arithmetic does.
    #[test]
    fn a_counted_window_decides_as_the_arithmetic_does() {
        let second = 1_000_000_000;
        for policy in [of(7).fixed_window(), of(7).fixed_window_staggered()] {
            let rule = CounterPolicy::new("rl", &policy).unwrap().unwrap();
            let tag = tag(b"k");
            let limit = Limit::new(policy.algorithm(), policy.quota()).unwrap();
            let (mut state, mut count, mut window) = (limit.unused(tag_bits(&tag)), 0, None);
            for step in 0..200_u64 {
                let nanos = step * step * second / 7;
                let number = rule.present(nanos, &tag).map(|(number, _)| number);
                if number != window {
                    (window, count) = (number, 0);
                }
                let charge = Charge::new(PolicyId::new(0), b"", step % 4);
                let decision = rule.decide(count, number, None, (nanos, &tag), &charge);
                assert_eq!(decision, state.charge(nanos, &charge), "{step}");
                count += decision.granted;
            }
        }
    }
}
