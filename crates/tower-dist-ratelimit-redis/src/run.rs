//! Runs: consecutive requests of the same cost to one bucket, which are most requests of a hot key.
//!
//! The script takes the tokens of a run in one step, and answers with the units that were used before. This module
//! computes each request's answer from this number, in the same integer arithmetic. So neither the server's time nor
//! the answer's length grows with the number of requests.

use super::{
    call::ScriptCall,
    rate::{MOST_USED, Rate},
    reply::PolicyReply,
};

/// Returns whether a request can join the run of the request before it: the series of equal requests that the script
/// decides in one step.
pub(super) fn can_follow(before: &ScriptCall, call: &ScriptCall) -> bool {
    let ([before], [ask]) = (&before.asks[..], &call.asks[..]) else {
        return false;
    };
    call.script.runs.is_some()
        && before.tag == ask.tag
        && before.asks_the_same(ask)
        && ask.cost > 0
        && ask.text.is_empty()
}

/// The answer to a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    rate: Rate,
    cost: u64,
    /// Used units of the bucket before the first request.
    used: u64,
}

impl Run {
    /// Reads the answer to a run of requests that are equal to `call`. The answer is `used`: the number of used units
    /// before the run. Returns `None` if this number is impossible.
    pub(super) fn new(call: &ScriptCall, used: i64) -> Option<Self> {
        let (rate, cost) = (call.script.runs?, call.asks.first()?.cost);
        let used = u64::try_from(used).ok().filter(|used| *used <= MOST_USED)?;
        Some(Self {
            rate,
            cost: u64::try_from(cost).ok().filter(|cost| *cost > 0)?,
            used,
        })
    }

    /// Returns the answer to the request with `rank` requests before it.
    pub(super) fn reply(&self, rank: usize) -> PolicyReply {
        let Self { rate, cost, used } = *self;
        let granted = u64::try_from(rank).map_or(u64::MAX, |rank| rank.min(rate.free(used) / cost));
        rate.reply(used + granted * cost * rate.token, cost)
    }
}

impl Rate {
    /// Returns the free tokens of a bucket with `used` units.
    fn free(self, used: u64) -> u64 {
        self.burst.saturating_sub(used) / self.token
    }

    /// Returns the answer of a bucket with `used` units to a request of this cost. The scripts compute the same answer.
    fn reply(self, used: u64, cost: u64) -> PolicyReply {
        let Self { rate, token, burst } = self;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let free = self.free(used);
        if cost <= free {
            return PolicyReply {
                remaining: number(free - cost),
                reset: number((used + cost * token).div_ceil(rate)),
                granted: number(cost),
                wait: 0,
            };
        }
        let units = cost.saturating_mul(token);
        let wait = match units <= burst {
            true => number((used + units - burst).div_ceil(rate)),
            false => -1,
        };
        PolicyReply {
            remaining: number(free),
            reset: number(used.div_ceil(rate)),
            granted: -1,
            wait,
        }
    }
}
