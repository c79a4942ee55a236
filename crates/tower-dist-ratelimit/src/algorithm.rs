//! The arithmetic of limits. Pure: no clock and no I/O; the time is an argument, in nanoseconds since the limiter's
//! creation, and the state is somebody else's to keep.

mod adjusted;
mod fixed_window;
mod leaky_bucket;
mod pace;
mod ratio;
mod sliding_log;
mod sliding_window;
mod token_bucket;

use std::time::Duration;

pub(crate) use self::fixed_window::decide_count;
pub use self::sliding_log::MAX_LOG;
pub use self::{
    adjusted::Adjusted,
    fixed_window::{Counter, FirstHit, FixedWindow},
    leaky_bucket::LeakyQueue,
    sliding_log::SlidingLog,
    sliding_window::{MAX_SUB_WINDOWS, Ring, SlidingWindow},
    token_bucket::TokenBucket,
};
use crate::{Decision, Quota, backend::Charge, quota::HORIZON};

/// The most that a counter counts, debts included. No sum of a counter and a cost reaches 2⁶⁴.
const MAX_COUNT: u64 = 1 << 61;

/// One way to limit, as arithmetic on the state of one key. A state that is [`Default`] is that of an unused key.
///
/// Deciding only reads; what an allowed request is granted is taken in a second step. So a check cannot write, a rejected
/// request can only change the quota in force, and the callers decide what makes the two steps one.
///
/// Times may come in any order. A clock that jumps back admits nothing more than it would have where it was.
pub trait Arithmetic: Send + Sync + 'static {
    type State: Default + Send + 'static;
    /// An instant, as one key sees it.
    type Moment: Copy;

    /// The moment that is `nanos` after the limiter's creation. After 100 years time stands still. `key` is 64 bits
    /// that tell keys apart.
    fn at(&self, nanos: u64, key: u64) -> Self::Moment;

    /// Decides. The decision goes to `out`: handing it up by value costs more than making it.
    fn decide(&self, state: &Self::State, now: Self::Moment, ask: &Ask<'_>, out: &mut Decision);

    /// Takes as many tokens as a decision at this moment has granted.
    fn take(&self, state: &mut Self::State, now: Self::Moment, ask: &Ask<'_>, tokens: u64);

    /// Puts the quota of a rejected request in force: from now on the key counts by it. Returns whether the state changed.
    fn adopt(&self, _: &mut Self::State, _: Self::Moment, _: &Ask<'_>) -> bool {
        false
    }

    /// Takes `delta` more tokens, also when there are too few, or puts them back when it is negative. Whether anything
    /// has changed.
    fn settle(&self, state: &mut Self::State, now: Self::Moment, ask: &Ask<'_>, delta: i64)
    -> bool;

    /// How much a key is limited, to compare with others of the same policy. Zero: as good as unused.
    fn pressure(&self, state: &Self::State, now: Self::Moment) -> u64;
}

/// An [`Arithmetic`] whose states can be kept elsewhere, as numbers. None at all are the state of an unused key.
pub trait Restored: Arithmetic<State: Send + Sync + std::fmt::Debug> {
    /// Names the algorithm and the version of its words.
    const KIND: u8;

    fn words(state: &Self::State) -> Words;

    /// The time by the writer's clock at which the state was written, if it depends on that, in nanoseconds.
    fn written(_: &Self::State) -> u64 {
        0
    }

    /// None, if these numbers are no state of this algorithm: they are somebody else's, or spoilt. What is restored
    /// may be unlikely, but can be counted with.
    fn restore(&self, words: &[u64]) -> Option<Self::State>;

    /// How long a state has something to say.
    fn lasts(&self, state: &Self::State, now: Self::Moment) -> Duration {
        let mut out = Decision::default();
        self.decide(state, now, &Ask::own(0), &mut out);
        out.reset_after
    }
}

/// A state as numbers.
pub type Words = smallvec::SmallVec<[u64; 5]>;

/// An [`Arithmetic`] whose state is one number, which is the larger the more a key is limited, or the later it was.
pub trait OneNumber: Arithmetic<State = u64> + Copy {
    /// As many tokens as [`decide`](Arithmetic::decide) grants, without the rest of the decision.
    fn granted(&self, state: u64, now: Self::Moment, ask: &Ask<'_>) -> u64;
}

/// What is asked of a limit.
#[derive(Clone, Copy, Debug)]
pub struct Ask<'a> {
    /// Zero only looks.
    pub cost: u64,
    /// As many tokens as are there, up to this; not less than the cost.
    pub want: u64,
    /// Instead of the policy's.
    pub quota: Option<&'a Quota>,
}

impl<'a> Ask<'a> {
    pub fn of(charge: &'a Charge<'_>) -> Self {
        Self {
            cost: charge.cost,
            want: charge.up_to,
            quota: charge.quota.as_ref(),
        }
    }

    /// By the policy's own quota, all or nothing.
    pub fn own(cost: u64) -> Self {
        Self {
            cost,
            want: cost,
            quota: None,
        }
    }

    /// The same key's state, without taking anything.
    pub fn look(&self) -> Self {
        Self { cost: 0, ..*self }
    }

    /// How many tokens to take out of so many that are free. None when they do not cover the cost.
    fn granted(&self, free: u64) -> Option<u64> {
        if self.cost > free {
            return None;
        }
        Some(match self.cost {
            0 => 0,
            cost => self.want.max(cost).min(free),
        })
    }

    /// The limit that holds for this request, of an algorithm that counts up to `most`.
    fn limit(&self, limit: u64, most: u64) -> u64 {
        self.quota.map_or(limit, |quota| quota.allowed().min(most))
    }
}

/// Returns a duration in nanoseconds, at most `u64::MAX`, which are 584 years.
#[inline]
pub fn saturating_nanos(duration: Duration) -> u64 {
    // What fits for certain, 136 years, needs no more than this.
    if let Ok(seconds) = u32::try_from(duration.as_secs()) {
        return u64::from(seconds) * 1_000_000_000 + u64::from(duration.subsec_nanos());
    }
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

/// Where time stands still.
fn clamp(nanos: u64) -> u64 {
    nanos.min(saturating_nanos(HORIZON))
}
