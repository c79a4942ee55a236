use std::{fmt, time::Duration};

use super::{Arithmetic, Now, Take, Words};
use crate::Decision;

/// An algorithm whose state is one number, 0 for an unused key. The number grows with the used tokens, and usually with
/// the time at which they were taken.
pub(crate) trait OneNumber: Copy + fmt::Debug + Send + Sync + 'static {
    /// An instant, converted for comparisons with the algorithm's state.
    type Moment: Copy;

    fn at(&self, now: Now) -> Self::Moment;

    /// Decides, without taking tokens.
    fn decide(&self, state: u64, now: Self::Moment, take: &Take<'_>) -> Decision {
        match self.granted(state, now, take) {
            Some(granted) => self.allow(state, now, take, granted).decision(granted),
            None => self.reject(state, now, take),
        }
    }

    /// Returns the tokens that a request gets, or `None` if the request is rejected.
    fn granted(&self, state: u64, now: Self::Moment, take: &Take<'_>) -> Option<u64>;

    /// Returns the numbers of a decision that grants these tokens. `state` is the state before it.
    fn allow(&self, state: u64, now: Self::Moment, take: &Take<'_>, granted: u64) -> Allowed;

    /// Returns the decision on a request for which [`granted`](Self::granted) returns `None`. The caller checks this.
    fn reject(&self, state: u64, now: Self::Moment, take: &Take<'_>) -> Decision;

    /// Returns the state after these tokens were taken.
    fn take(&self, state: u64, now: Self::Moment, tokens: u64) -> u64;

    /// Returns the corrected state. It equals `state` if the correction changes nothing.
    fn settle(&self, state: u64, now: Self::Moment, delta: i64) -> u64;
}

/// The numbers of a decision that allows a charge, in fewer bytes than a [`Decision`].
pub(crate) struct Allowed {
    pub(super) limit: u64,
    pub(super) remaining: u64,
    pub(super) reset_after: Duration,
    pub(super) delay: Duration,
}

impl Allowed {
    #[inline(always)]
    pub(crate) fn decision(self, granted: u64) -> Decision {
        Decision {
            delay: self.delay,
            ..Decision::allow(granted, self.limit, self.remaining, self.reset_after)
        }
    }
}

impl<A: OneNumber> Arithmetic for A {
    fn decide(&self, words: &[u64], now: Now, take: &Take<'_>) -> Decision {
        OneNumber::decide(self, read(words), self.at(now), take)
    }

    fn take(&self, words: &mut Words, now: Now, _: &Take<'_>, tokens: u64) {
        let state = OneNumber::take(self, read(words), self.at(now), tokens);
        *words = Words::from_elem(state, 1);
    }

    fn settle(&self, words: &mut Words, now: Now, _: &Take<'_>, delta: i64) -> bool {
        let state = read(words);
        let settled = OneNumber::settle(self, state, self.at(now), delta);
        if settled != state {
            *words = Words::from_elem(settled, 1);
        }
        settled != state
    }

    fn decode(&self, words: Words) -> Option<Words> {
        (words.len() < 2).then_some(words)
    }
}

fn read(words: &[u64]) -> u64 {
    words.first().copied().unwrap_or(0)
}
