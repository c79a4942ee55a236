//! The arithmetic of each algorithm, without a clock and without I/O.
//!
//! Times are nanoseconds since an epoch that the caller chooses. The caller keeps the state.

mod adjusted;
mod bucket;
mod first_request;
mod fixed_window;
mod one_number;
mod pace;
mod ratio;
mod sliding_log;
mod sliding_window;

use std::{fmt, time::Duration};

pub use self::sliding_log::MAX_LOG;
pub(crate) use self::{
    adjusted::Adjusted,
    bucket::Bucket,
    first_request::FirstRequest,
    fixed_window::{FixedWindow, decide_count},
    one_number::{Allowed, OneNumber},
    sliding_log::SlidingLog,
    sliding_window::{MAX_SUB_WINDOWS, SlidingWindow},
};
use crate::{Decision, Quota, backend::Charge, quota::HORIZON};

/// The maximum count of used tokens in a log, a sliding window, or a window that begins with a request, unless the
/// clock jumps back. Debts are included. The sum of two counts stays below 2⁶⁴.
const MAX_COUNT: u64 = 1 << 61;

/// The state of one key as 64-bit words, whose meaning the algorithm defines. A new key has no words.
pub(crate) type Words = smallvec::SmallVec<[u64; 2]>;

/// The time of an operation on a key, and a hash of the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// Nanoseconds since an epoch that the caller chooses.
    pub(crate) nanos: u64,
    /// A 64-bit hash of the key. It sets when the key's staggered windows begin.
    pub(crate) key: u64,
}

/// An algorithm under a quota: arithmetic on the state of one key.
///
/// [`decide`](Self::decide) only reads the state, and [`take`](Self::take) takes the granted tokens. The caller makes
/// these two steps atomic. A rejected request takes no tokens, but can put its quota in force, by
/// [`adopt`](Self::adopt).
///
/// Times may come in any order. If the clock jumps back, a decision admits at most the tokens that it would admit
/// without the jump.
pub(crate) trait Arithmetic: fmt::Debug + Send + Sync {
    /// Decides, without taking tokens.
    fn decide(&self, state: &[u64], now: Now, take: &Take<'_>) -> Decision;

    /// Takes the tokens that a decision at the same time has granted.
    fn take(&self, state: &mut Words, now: Now, take: &Take<'_>, tokens: u64);

    /// Puts the quota of a request in force, although the request took no tokens. A request without a quota has the
    /// policy's own. Writes nothing if the key has no used tokens, if the quota is zero, or if the stored state means
    /// the same under this quota as under the quota in force. Algorithms that store no quota with the key write
    /// nothing.
    fn adopt(&self, _: &mut Words, _: Now, _: &Take<'_>) {}

    /// Takes `delta` tokens even if fewer are free. If `delta` is negative, refunds `-delta` tokens. The number of used
    /// tokens saturates at 0 and at a maximum. Returns whether any tokens were taken or refunded.
    fn settle(&self, state: &mut Words, now: Now, take: &Take<'_>, delta: i64) -> bool;

    /// Returns the time until the key has no used tokens.
    fn ttl(&self, state: &[u64], now: Now) -> Duration {
        self.decide(state, now, &Take::own(0)).reset_after
    }

    /// Returns a number that compares keys of one policy: usually, the more a key is limited, the larger. 0 if the key
    /// has no used tokens.
    fn pressure(&self, state: &[u64], now: Now) -> u64 {
        saturating_nanos(self.ttl(state, now))
    }

    /// Converts the state to the words that a store keeps.
    fn encode(&self, state: &[u64]) -> Words {
        Words::from_slice(state)
    }

    /// Converts the words of a store to the state. Returns `None` if the words do not have the form of a state.
    fn decode(&self, words: Words) -> Option<Words>;
}

/// Decides on a request. If the request is allowed, takes the granted tokens. If it is rejected, its quota can come
/// into force.
pub(crate) fn charge(
    arithmetic: &dyn Arithmetic,
    state: &mut Words,
    now: Now,
    take: &Take<'_>,
) -> Decision {
    let decision = arithmetic.decide(state, now, take);
    if decision.granted > 0 {
        arithmetic.take(state, now, take, decision.granted);
    } else if !decision.allowed {
        arithmetic.adopt(state, now, take);
    }
    decision
}

/// A request for tokens of one key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Take<'a> {
    /// The cost, in tokens. A cost of zero takes nothing.
    pub(crate) cost: u64,
    /// The maximum grant, in tokens. A number below the cost has no effect: the grant is then the cost.
    pub(crate) up_to: u64,
    /// The quota that replaces the policy's own, if the request brings one.
    pub(crate) quota: Option<&'a Quota>,
}

impl<'a> Take<'a> {
    pub(crate) fn of(charge: &'a Charge<'_>) -> Self {
        Self {
            cost: charge.cost,
            up_to: charge.up_to,
            quota: charge.quota.as_ref(),
        }
    }

    /// A request of this cost under the policy's own quota.
    pub(crate) fn own(cost: u64) -> Self {
        Self {
            cost,
            up_to: cost,
            quota: None,
        }
    }

    /// The same request with a cost of zero, which only reads the remaining tokens.
    pub(crate) fn look(&self) -> Self {
        Self { cost: 0, ..*self }
    }

    /// Returns the granted tokens, or `None` if the free tokens do not cover the cost.
    fn granted(&self, free: u64) -> Option<u64> {
        if self.cost > free {
            return None;
        }
        Some(match self.cost {
            0 => 0,
            cost => self.up_to.max(cost).min(free),
        })
    }

    /// Returns the tokens per window under the request's own quota, at most `most`. Without such a quota, returns
    /// `limit`.
    fn limit(&self, limit: u64, most: u64) -> u64 {
        self.quota.map_or(limit, |quota| quota.allowed().min(most))
    }

    /// Decides on the request, with `free` free tokens. A request that costs more than `most` tokens never passes.
    ///
    /// `reset_after` receives the number of granted tokens. `retry_after` is called only for a rejected request that
    /// can pass later.
    #[inline(always)]
    fn decision(
        &self,
        limit: u64,
        free: u64,
        most: u64,
        reset_after: impl Fn(u64) -> Duration,
        retry_after: impl FnOnce() -> Duration,
    ) -> Decision {
        match self.granted(free) {
            Some(granted) => Decision::allow(granted, limit, free - granted, reset_after(granted)),
            None => {
                let retry_after = (self.cost <= most).then(retry_after);
                Decision::reject(limit, free, retry_after, reset_after(0))
            }
        }
    }
}

/// Returns a duration in nanoseconds. A duration above `u64::MAX` nanoseconds (about 584 years) becomes `u64::MAX`.
#[inline]
#[must_use]
pub fn saturating_nanos(duration: Duration) -> u64 {
    let seconds = duration.as_secs().saturating_mul(1_000_000_000);
    seconds.saturating_add(duration.subsec_nanos().into())
}

/// Limits a time to the [`HORIZON`]: a later time counts as the horizon.
fn clamp(nanos: u64) -> u64 {
    nanos.min(saturating_nanos(HORIZON))
}
