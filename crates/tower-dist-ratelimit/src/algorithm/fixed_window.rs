mod first_hit;

use std::time::Duration;

pub use self::first_hit::{Counter, FirstHit};
use super::{Arithmetic, Ask, OneNumber, clamp, saturating_nanos};
use crate::{BuildError, Decision, Quota, quota::HORIZON};

/// A counter that starts again at zero with every window. Windows begin at the limiter's creation, or for each key
/// somewhere else, so that not all of them start anew in the same instant.
///
/// Kept as one number: the window's, counted from 1, over the count in as many low bits as the horizon leaves. So a
/// later window is a larger number, and in one window a larger count. 0 stands for a key that nobody has used.
///
/// A quota of another window has the limit of that quota in the window of this one.
#[derive(Clone, Copy, Debug)]
pub struct FixedWindow {
    limit: u64,
    /// In nanoseconds.
    window: u64,
    count_bits: u32,
    staggered: bool,
}

/// An instant in a key's windows.
#[derive(Clone, Copy, Debug)]
pub struct Tick {
    /// In nanoseconds since the first window began.
    nanos: u64,
    /// The window's, counted from 1.
    number: u64,
}

impl FixedWindow {
    pub fn new(quota: Quota, staggered: bool) -> Result<Self, BuildError> {
        quota.check()?;
        let window = saturating_nanos(quota.window());
        // One for the phase, one because they are counted from 1.
        let windows = saturating_nanos(HORIZON) / window + 2;
        let count_bits = windows.leading_zeros();
        let most = (1 << count_bits) - 1;
        if quota.limit() > most {
            let bound = format_args!("at most {most} in a fixed window of {:?}", quota.window());
            return Err(BuildError::new("limit", quota.limit(), bound));
        }
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

    /// The window that counts, and its count: the one of now; or a later one, if the clock has jumped back.
    fn read(&self, state: u64, now: Tick) -> (u64, u64) {
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

impl Arithmetic for FixedWindow {
    type State = u64;
    type Moment = Tick;

    fn at(&self, nanos: u64, key: u64) -> Tick {
        let phase = if self.staggered {
            scaled(key, self.window)
        } else {
            0
        };
        let nanos = clamp(nanos) + phase;
        Tick {
            nanos,
            number: nanos / self.window + 1,
        }
    }

    #[inline(always)]
    fn decide(&self, state: &u64, now: Tick, ask: &Ask<'_>, out: &mut Decision) {
        let limit = ask.limit(self.limit, self.most());
        let (number, count) = self.read(*state, now);
        // Windows are counted from 1, so this is where the next one begins.
        let left = Duration::from_nanos(number * self.window - now.nanos);
        *out = decide_count(limit, count, left, ask);
    }

    fn take(&self, state: &mut u64, now: Tick, _: &Ask<'_>, tokens: u64) {
        let (number, count) = self.read(*state, now);
        *state = self.write(number, count + tokens);
    }

    fn settle(&self, state: &mut u64, now: Tick, _: &Ask<'_>, delta: i64) -> bool {
        let (number, count) = self.read(*state, now);
        let settled = count.saturating_add_signed(delta).min(self.most());
        if settled != count {
            *state = self.write(number, settled);
        }
        settled != count
    }

    fn pressure(&self, state: &u64, now: Tick) -> u64 {
        self.read(*state, now).1
    }
}

impl OneNumber for FixedWindow {
    #[inline(always)]
    fn granted(&self, state: u64, now: Tick, ask: &Ask<'_>) -> u64 {
        let limit = ask.limit(self.limit, self.most());
        let (_, count) = self.read(state, now);
        ask.granted(limit.saturating_sub(count)).unwrap_or(0)
    }
}

impl FixedWindow {
    /// The number of a key's window at this moment.
    pub fn number(self, now: Tick) -> u64 {
        now.number
    }

    /// The state of a key of which so much was counted in the window of this number.
    pub fn counted(self, number: u64, count: u64) -> u64 {
        self.write(number, count.min(self.most()))
    }
}

impl super::Restored for FixedWindow {
    const KIND: u8 = 0x13;

    fn words(state: &u64) -> super::Words {
        match *state {
            0 => super::Words::new(),
            state => [state].into_iter().collect(),
        }
    }

    fn restore(&self, words: &[u64]) -> Option<u64> {
        match *words {
            [] => Some(0),
            [state] => Some(state),
            _ => None,
        }
    }
}

/// Decides by the count of a window that ends in this time.
#[inline(always)]
pub(crate) fn decide_count(limit: u64, count: u64, left: Duration, ask: &Ask<'_>) -> Decision {
    let free = limit.saturating_sub(count);
    let reset_after = |count| if count == 0 { Duration::ZERO } else { left };
    match ask.granted(free) {
        Some(granted) => {
            Decision::allow(granted, limit, free - granted, reset_after(count + granted))
        }
        None => {
            let retry_after = (ask.cost <= limit).then_some(left);
            Decision::reject(limit, free, retry_after, reset_after(count))
        }
    }
}

/// Maps 64 bits to `0..len`.
fn scaled(bits: u64, len: u64) -> u64 {
    u64::try_from((u128::from(bits) * u128::from(len)) >> 64).unwrap_or(0)
}
