use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    demand::Demand,
    owner::Owner,
    share::{HOT, Outlook, Shortage},
    slot::Slot,
};
use crate::Decision;

/// What is known of a slot's key, under the lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// Whom what is left is given back of; not of keys too long to be kept.
    pub(super) owner: Option<Owner>,
    pub(super) demand: Demand,
    pub(super) shortage: Shortage,
    /// The number of the one who asks the store for more; zero for nobody.
    pub(super) asking: u64,
    /// The last such number.
    pub(super) asked: u64,
    /// Somebody has given back since that was asked: that the store was short says nothing any more.
    pub(super) relieved: bool,
    /// What others have taken from the store since that was asked, or may have.
    pub(super) beside: u64,
    /// What the store had when it last answered.
    pub(super) remaining: u64,
}

/// What to do with a request for which there are no tokens here.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Ask the store about it alone.
    Exact,
    /// Reject it until then: the store was short a moment ago.
    Reject(u64),
    /// Ask for it and for so many tokens more, under this number.
    Ask { id: u64, extra: u64 },
}

/// A request, as its key's set sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) tag: u64,
    pub(super) cost: u64,
    pub(super) burst: u64,
    pub(super) now: u64,
    /// Nobody waits for it.
    pub(super) ahead: bool,
}

/// A store's answer to somebody who has asked for more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) tag: u64,
    pub(super) id: u64,
    /// When it was asked for: the lease counts from there.
    pub(super) asked: u64,
    pub(super) now: u64,
    /// What of it was for a request.
    pub(super) cost: u64,
    pub(super) want: u64,
}

impl Account {
    /// What to do without tokens, or to get more ahead of time.
    pub(super) fn plan(&mut self, slot: &Slot, ask: Ask, lease: u64) -> Plan {
        let seen = slot.seen.swap(0, Relaxed);
        self.demand = self.demand.seen(seen, ask.now, lease);
        let demand = self.demand.expected(lease);
        let is_short = ask.cost >= slot.reject_from.load(Relaxed);
        if self.asking != 0 {
            return if self.shortage.lasts() && is_short {
                let pause = self.shortage.pause(demand, lease);
                Plan::Reject(ask.now.saturating_add(pause.max(1)))
            } else {
                Plan::Exact
            };
        }
        let reject_until = slot.reject_until.load(Relaxed);
        if ask.now < reject_until && is_short {
            return Plan::Reject(reject_until);
        }
        if ask.now < slot.not_before.load(Relaxed) {
            return Plan::Exact;
        }
        let outlook = Outlook {
            demand,
            cost: ask.cost,
            // What dies before an answer can be here is no use.
            held: slot.held(ask.now.saturating_add(lease / 4)),
            remaining: self.remaining,
            burst: ask.burst,
        };
        // Of the first requests half as many have to be seen, and not only expected.
        let is_hot = demand >= HOT && self.demand.per_lease() >= HOT / 2;
        let extra = if is_hot { outlook.extra() } else { 0 };
        if extra == 0 {
            if ask.ahead {
                let later = ask.now.saturating_add(lease / 8);
                slot.not_before.store(later, Relaxed);
            }
            return Plan::Exact;
        }
        self.asked += 1;
        self.asking = self.asked;
        self.relieved = false;
        // Nobody else need look whether it is time.
        slot.not_before.store(u64::MAX, Relaxed);
        Plan::Ask {
            id: self.asking,
            extra,
        }
    }

    /// So many tokens are not in the store any more, or soon: what is told to be left never is more than there is.
    pub(super) fn take(&mut self, slot: &Slot, tokens: u64) {
        self.beside = self.beside.saturating_add(tokens);
        let remaining = slot.remaining.load(Relaxed);
        slot.remaining
            .store(remaining.saturating_sub(tokens), Relaxed);
    }

    /// Puts what was granted in a purse, and says until when requests without tokens are rejected.
    pub(super) fn answered(
        &mut self,
        slot: &Slot,
        answered: Answered,
        decision: &Decision,
        lease: u64,
    ) -> u64 {
        self.asking = 0;
        let extra = decision.granted.saturating_sub(answered.cost);
        let short = decision.granted < answered.want && !self.relieved;
        self.shortage = self.shortage.after(short);
        let again = if short {
            let retry = decision.retry_after.map_or(lease, nanos);
            let pause = self.shortage.pause(self.demand.expected(lease), lease);
            answered.asked.saturating_add(pause.max(retry).min(lease))
        } else {
            0
        };
        slot.limit.store(decision.limit, Relaxed);
        self.remaining = decision.remaining;
        let remaining = decision.remaining.saturating_sub(self.beside);
        slot.remaining.store(remaining, Relaxed);
        let full_at = answered.now.saturating_add(nanos(decision.reset_after));
        slot.full_at.store(full_at, Relaxed);
        if extra > 0 {
            slot.fill(extra, answered.asked.saturating_add(lease), answered.now);
        }
        let lasting = slot.held(answered.now.saturating_add(lease / 4));
        slot.low.store(lasting / 3, Relaxed);
        // Who was rejected needs as much; who got less than wanted, any.
        let (from, due) = match decision.retry_after {
            Some(wait) if !decision.allowed => {
                (answered.cost, answered.now.saturating_add(nanos(wait)))
            }
            _ => (0, 0),
        };
        slot.reject_from.store(from, Relaxed);
        slot.due.store(due, Relaxed);
        slot.reject_until.store(again, Relaxed);
        slot.not_before.store(again, Release);
        again
    }
}

/// Up to 584 years.
fn nanos(time: std::time::Duration) -> u64 {
    crate::algorithm::saturating_nanos(time)
}
