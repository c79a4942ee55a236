use std::time::Duration;

use super::{
    Arithmetic, Ask, OneNumber,
    pace::{Moment, Pace},
    saturating_nanos,
};
use crate::{Decision, Quota};

/// The largest state: the clock stays below 2⁶³ units.
const LARGEST: u64 = (1 << 63) + super::pace::MAX_AHEAD;

/// An algorithm that counts at the pace of its quota.
pub trait Paced: OneNumber<Moment = Moment> + Copy {
    /// [`Restored::KIND`](super::Restored::KIND).
    const KIND: u8;

    /// The same for another quota, whatever that is.
    fn adjusted(&self, quota: Quota) -> Self;

    fn pace(&self) -> &Pace;
}

/// A bucket or queue whose quota can be another one for each key and at each request.
///
/// A quota is in force from the first request that brings it, allowed or rejected, until a request brings another one.
/// The used tokens drain at the rate of the quota in force. They stay used when the quota changes. Quotas that could not
/// be built are taken as the nearest that could. A quota of zero rejects everything and is never in force.
#[derive(Clone, Copy, Debug)]
pub struct Adjusted<A> {
    quota: Quota,
    one: A,
}

/// One key's state, and the quota that it is counted by.
#[derive(Clone, Copy, Debug, Default)]
pub struct Used {
    /// The state of the algorithm for the quota in force.
    state: u64,
    /// None for an unused key.
    in_force: Option<Quota>,
    /// When nothing is used any more, in nanoseconds since the limiter's creation. Kept, because making room for a key asks
    /// for it of many others.
    until: u64,
    /// When this was written, in the same.
    written: u64,
}

impl<A: Paced> Adjusted<A> {
    /// As `one`, which is of this quota, where there is no other.
    pub fn new(quota: Quota, one: A) -> Self {
        Self { quota, one }
    }

    fn of(&self, quota: Quota) -> A {
        if quota == self.quota {
            self.one
        } else {
            self.one.adjusted(quota)
        }
    }

    fn quota(&self, ask: &Ask<'_>) -> Quota {
        ask.quota.copied().unwrap_or(self.quota)
    }

    /// The units that are still used by the quota in force, and their algorithm; none of an unused key.
    fn left(&self, used: &Used, nanos: u64) -> Option<(u64, A)> {
        let one = self.of(used.in_force?);
        let left = used.state.saturating_sub(one.pace().at(nanos).units);
        (left > 0).then_some((left, one))
    }

    /// The state as the algorithm for this quota sees it.
    fn read(&self, used: &Used, one: &A, quota: Quota, nanos: u64) -> u64 {
        if used.in_force == Some(quota) {
            return used.state;
        }
        let converted = self.left(used, nanos).map(|(left, former)| {
            let pace = one.pace();
            pace.at(nanos).units + pace.converted(left, former.pace().token_bits())
        });
        converted.unwrap_or(0)
    }

    fn counted(state: u64, one: &A, quota: Quota, written: u64) -> Used {
        let pace = one.pace();
        Used {
            state,
            in_force: Some(quota),
            until: saturating_nanos(pace.span(pace.at(0), state)),
            written,
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
        let quota = self.quota(ask);
        let one = self.of(quota);
        let state = self.read(used, &one, quota, nanos);
        one.decide(&state, one.at(nanos, 0), ask, out);
    }

    fn take(&self, used: &mut Used, nanos: u64, ask: &Ask<'_>, tokens: u64) {
        let quota = self.quota(ask);
        let one = self.of(quota);
        let mut state = self.read(used, &one, quota, nanos);
        one.take(&mut state, one.at(nanos, 0), ask, tokens);
        *used = Self::counted(state, &one, quota, nanos);
    }

    fn adopt(&self, used: &mut Used, nanos: u64, ask: &Ask<'_>) -> bool {
        let nanos = nanos.max(used.written);
        let quota = self.quota(ask);
        if quota.is_zero() || used.in_force == Some(quota) || self.left(used, nanos).is_none() {
            return false;
        }
        let one = self.of(quota);
        let state = self.read(used, &one, quota, nanos);
        *used = Self::counted(state, &one, quota, nanos);
        true
    }

    /// A late charge brings its quota as any charge does. A refund changes no quota.
    fn settle(&self, used: &mut Used, nanos: u64, ask: &Ask<'_>, delta: i64) -> bool {
        // By a clock that is behind the last writer's, it would look as if all of the difference were used.
        let nanos = nanos.max(used.written);
        let asked = Some(self.quota(ask)).filter(|quota| !quota.is_zero());
        let asked = asked.unwrap_or(self.quota);
        let is_used = self.left(used, nanos).is_some();
        let quota = match used.in_force {
            Some(in_force) if is_used && delta < 0 => in_force,
            _ => asked,
        };
        let one = self.of(quota);
        let mut state = self.read(used, &one, quota, nanos);
        let changed = one.settle(&mut state, one.at(nanos, 0), ask, delta);
        if changed {
            *used = Self::counted(state, &one, quota, nanos);
        }
        changed
    }

    fn pressure(&self, used: &Used, nanos: u64) -> u64 {
        used.until.saturating_sub(nanos)
    }
}

impl<A: Paced> super::Restored for Adjusted<A> {
    const KIND: u8 = A::KIND;

    fn words(used: &Used) -> super::Words {
        let Some(quota) = used.in_force else {
            return super::Words::new();
        };
        let window = saturating_nanos(quota.window());
        let words = [
            used.state,
            quota.limit(),
            window,
            quota.burst_size(),
            used.written,
        ];
        words.into()
    }

    fn written(used: &Used) -> u64 {
        used.written
    }

    fn restore(&self, words: &[u64]) -> Option<Used> {
        match *words {
            [] => Some(Used::default()),
            [state @ ..=LARGEST, limit, window, burst, written] => {
                let quota = Quota::new(limit, Duration::from_nanos(window)).burst(burst);
                Some(Self::counted(state, &self.of(quota), quota, written))
            }
            _ => None,
        }
    }

    fn lasts(&self, used: &Used, nanos: u64) -> Duration {
        Duration::from_nanos(used.until.saturating_sub(nanos))
    }
}
