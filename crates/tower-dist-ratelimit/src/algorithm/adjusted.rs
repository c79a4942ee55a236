use super::{
    Arithmetic, Ask, OneNumber,
    pace::{Moment, Pace},
    saturating_nanos,
};
use crate::{Decision, Quota};

/// An algorithm that counts at the pace of its quota.
pub(crate) trait Paced: OneNumber<Moment = Moment> + Copy {
    /// The same for another quota, whatever that is.
    fn adjusted(&self, quota: Quota) -> Self;

    fn pace(&self) -> &Pace;
}

/// A bucket or queue whose quota can be another one for each key and at each request.
///
/// What was used stays used, in tokens. Since then it has drained at the rate of the quota that is asked by now. Quotas
/// that could not be built are taken as the nearest that could; a limit of zero refuses everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Adjusted<A> {
    quota: Quota,
    one: A,
}

/// What was used when it was last written: a state that means the same at every pace.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Used {
    units: u64,
    token_bits: u32,
    /// In nanoseconds since the limiter's creation.
    written: u64,
    /// When nothing of it counts any more, in the same, by the slowest of the quotas that it was taken by. Whoever makes room asks
    /// this, who does not know the key's quota.
    until: u64,
}

impl<A: Paced> Adjusted<A> {
    /// As `one`, which is of this quota, where there is no other.
    pub(crate) fn new(quota: Quota, one: A) -> Self {
        Self { quota, one }
    }

    fn asked(&self, ask: &Ask<'_>) -> A {
        match ask.quota {
            Some(quota) if *quota != self.quota => self.one.adjusted(*quota),
            _ => self.one,
        }
    }

    /// The state as one pace sees it.
    fn read(one: &A, used: &Used) -> u64 {
        if used.units == 0 {
            return 0;
        }
        let pace = one.pace();
        pace.at(used.written).units + pace.converted(used.units, used.token_bits)
    }

    fn write(one: &A, state: u64, nanos: u64) -> Used {
        let pace = one.pace();
        let now = pace.at(nanos);
        let units = state.saturating_sub(now.units);
        Used {
            units,
            token_bits: pace.token_bits(),
            written: nanos,
            until: nanos.saturating_add(saturating_nanos(pace.span(now, units))),
        }
    }
}

impl<A: Paced> Arithmetic for Adjusted<A> {
    type State = Used;
    type Moment = u64;

    fn at(&self, nanos: u64, _: u64) -> u64 {
        nanos
    }

    fn decide(&self, used: &Used, nanos: u64, ask: &Ask<'_>, out: &mut Decision) {
        let one = self.asked(ask);
        one.decide(&Self::read(&one, used), one.at(nanos, 0), ask, out);
    }

    fn take(&self, used: &mut Used, nanos: u64, ask: &Ask<'_>, tokens: u64) {
        let one = self.asked(ask);
        let mut state = Self::read(&one, used);
        one.take(&mut state, one.at(nanos, 0), ask, tokens);
        let taken = Self::write(&one, state, nanos);
        let until = taken.until.max(used.until);
        *used = Used { until, ..taken };
    }

    /// A quota with a limit of zero is ignored: its token takes a century, so that a debt of two tokens could not be
    /// counted.
    fn settle(&self, used: &mut Used, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool {
        // By a clock that is behind the last writer's, it would look as if all of the difference were used.
        let nanos = nanos.max(used.written);
        let quota = ask.quota.filter(|quota| quota.limit() > 0);
        let one = self.asked(&Ask { quota, ..*ask });
        let mut state = Self::read(&one, used);
        let changed = one.settle(&mut state, one.at(nanos, 0), ask, delta);
        if changed {
            *used = Self::write(&one, state, nanos);
        }
        changed
    }

    fn pressure(&self, used: &Used, nanos: u64) -> u64 {
        used.until.saturating_sub(nanos)
    }
}

#[cfg(feature = "memcached")]
impl<A: Paced> super::Restored for Adjusted<A> {
    fn words(used: &Used) -> super::Words {
        match used.units {
            0 => super::Words::new(),
            units => [units, used.token_bits.into(), used.written].into(),
        }
    }

    fn written(used: &Used) -> u64 {
        used.written
    }

    fn restore(&self, words: &[u64]) -> Option<Used> {
        match *words {
            [] => Some(Used::default()),
            [
                units @ 1..=super::pace::MAX_AHEAD,
                token_bits @ 0..64,
                written,
            ] => Some(Used {
                units,
                token_bits: u32::try_from(token_bits).ok()?,
                written,
                // Where words are kept nobody has to make room.
                until: 0,
            }),
            _ => None,
        }
    }
}
