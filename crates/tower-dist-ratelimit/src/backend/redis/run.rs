//! Requests of the same cost to one bucket that come in a row: on a hot key nearly all. The script takes what all of them
//! take in one step, and says what was used before; what each of them is told follows from that, here, with the same
//! whole numbers. So neither the server's time nor the answer's length grows with their number.

use smallvec::smallvec;

use super::{
    call::Call,
    rate::{MOST_USED, Rate},
    reply::{Said, Words},
};

/// Whether a request can be decided as one with the one before it.
pub(super) fn may_follow(before: &Call, call: &Call) -> bool {
    let ([before], [ask]) = (&before.asks[..], &call.asks[..]) else {
        return false;
    };
    call.script.runs.is_some()
        && before.tag == ask.tag
        && before.text == ask.text
        && ask.cost > 0
        && ask.text.iter().all(u8::is_ascii_digit)
}

/// What is said on each of these requests, of a bucket of which so much was used; none if that cannot be.
pub(super) fn said(calls: &[Call], used: i64) -> Option<impl Iterator<Item = Words>> {
    let [first, ..] = calls else { return None };
    let (rate, cost) = (first.script.runs?, first.asks.first()?.cost);
    let cost = u64::try_from(cost).ok()?;
    let mut used = u64::try_from(used).ok().filter(|used| *used <= MOST_USED)?;
    Some(calls.iter().map(move |_| {
        let said = rate.say(used, cost);
        if said.granted > 0 {
            used += cost * rate.token;
        }
        smallvec![said]
    }))
}

impl Rate {
    /// What a bucket of which so much is used says to a request that would take no more than its cost: as the scripts do.
    fn say(self, used: u64, cost: u64) -> Said {
        let Self { rate, token, burst } = self;
        let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
        let free = burst.saturating_sub(used) / token;
        if cost <= free {
            return Said {
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
        Said {
            remaining: number(free),
            reset: number(used.div_ceil(rate)),
            granted: -1,
            wait,
        }
    }
}
