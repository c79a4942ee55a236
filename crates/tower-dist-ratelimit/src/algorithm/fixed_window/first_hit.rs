use std::time::Duration;

use super::super::{Arithmetic, Ask, MAX_COUNT, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota};

/// A fixed window that begins with a key's first request, and the next one with its first request after that.
///
/// A quota of another window has the limit of that quota in the window of this one.
#[derive(Clone, Copy, Debug)]
pub struct FirstHit {
    limit: u64,
    /// In nanoseconds.
    window: u64,
}

/// When the window ends, in nanoseconds since the limiter's creation, and what was taken in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counter {
    end: u64,
    count: u64,
}

impl FirstHit {
    pub fn new(quota: Quota) -> Result<Self, BuildError> {
        quota.check()?;
        quota.check_limit(MAX_COUNT)?;
        Ok(Self {
            limit: quota.limit(),
            window: saturating_nanos(quota.window()),
        })
    }

    /// The counter as it stands; one that would begin now if its window is over.
    fn read(&self, state: &Counter, now: u64) -> Counter {
        if state.end > now && state.count > 0 {
            *state
        } else {
            Counter {
                end: now + self.window,
                count: 0,
            }
        }
    }
}

impl Arithmetic for FirstHit {
    type State = Counter;
    type Moment = u64;

    fn at(&self, nanos: u64, _: u64) -> u64 {
        clamp(nanos)
    }

    fn decide(&self, state: &Counter, now: u64, ask: &Ask<'_>, out: &mut Decision) {
        let limit = ask.limit(self.limit, MAX_COUNT);
        let Counter { end, count } = self.read(state, now);
        *out = super::decide_count(limit, count, Duration::from_nanos(end - now), ask);
    }

    fn take(&self, state: &mut Counter, now: u64, _: &Ask<'_>, tokens: u64) {
        *state = self.read(state, now);
        state.count += tokens;
    }

    fn settle(&self, state: &mut Counter, now: u64, _: &Ask<'_>, delta: i64) -> bool {
        let before = self.read(state, now);
        let count = before.count.saturating_add_signed(delta).min(MAX_COUNT);
        if count != before.count {
            *state = Counter { count, ..before };
        }
        count != before.count
    }

    fn pressure(&self, state: &Counter, now: u64) -> u64 {
        self.read(state, now).count
    }
}

impl super::super::Restored for FirstHit {
    const KIND: u8 = 0x14;

    fn words(state: &Counter) -> super::super::Words {
        match state.count {
            0 => super::super::Words::new(),
            count => [state.end, count].into_iter().collect(),
        }
    }

    fn restore(&self, words: &[u64]) -> Option<Counter> {
        match *words {
            [] => Some(Counter::default()),
            [end, count @ 1..=MAX_COUNT] => Some(Counter { end, count }),
            _ => None,
        }
    }
}

impl Counter {
    /// A window that has so much counted, and ends then.
    pub fn until(end: u64, count: u64) -> Self {
        Self {
            end,
            count: count.min(MAX_COUNT),
        }
    }
}
