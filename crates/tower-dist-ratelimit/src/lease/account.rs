use std::sync::atomic::Ordering::{Relaxed, Release};

use super::{
    demand::Demand,
    owner::Owner,
    share::{HOT, Outlook, Shortage},
    slot::Slot,
};
use crate::Decision;

/// Per-key state, guarded by the set's lock.
#[derive(Clone, Debug, Default)]
pub(super) struct Account {
    /// The key whose unused tokens are returned. `None` if the key is too long to store.
    pub(super) owner: Option<Owner>,
    pub(super) demand: Demand,
    pub(super) shortage: Shortage,
    /// Id of the refill in flight, or 0.
    pub(super) asking: u64,
    /// Id of the latest refill.
    pub(super) asked: u64,
    /// A refund arrived after the refill was sent, so its short grant is no evidence of a shortage.
    pub(super) relieved: bool,
    /// Tokens that the backend charged, or may have charged, outside of the refill since it was sent.
    pub(super) beside: u64,
    /// Remaining tokens in the backend's last answer to a refill.
    pub(super) remaining: u64,
}

/// How to handle a request that finds no leased tokens.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Send the request to the backend without a refill.
    Exact,
    /// Reject until this time, because the backend was short a moment ago.
    Reject(u64),
    /// Send a refill with this id for the request and `extra` tokens.
    Ask { id: u64, extra: u64 },
}

/// A request as the lease table sees it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ask {
    pub(super) tag: u64,
    pub(super) cost: u64,
    pub(super) burst: u64,
    pub(super) now: u64,
    /// The refill runs in the background: no request waits for it.
    pub(super) ahead: bool,
}

/// The circumstances of the backend's answer to a refill.
#[derive(Clone, Copy, Debug)]
pub(super) struct Answered {
    pub(super) tag: u64,
    pub(super) id: u64,
    /// When the refill was sent. The lease time starts here.
    pub(super) asked: u64,
    pub(super) now: u64,
    /// Tokens for the waiting request, included in `want`.
    pub(super) cost: u64,
    pub(super) want: u64,
}

impl Account {
    /// Decides how to handle a request without tokens, or whether to refill in the background.
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
            // Tokens that expire before the refill arrives do not count.
            held: slot.held(ask.now.saturating_add(lease / 4)),
            remaining: self.remaining,
            burst: ask.burst,
        };
        // The first estimates are uncertain: half of `HOT` must also have been measured.
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
        // No other request checks for a refill while this one is in flight.
        slot.not_before.store(u64::MAX, Relaxed);
        Plan::Ask {
            id: self.asking,
            extra,
        }
    }

    /// Records tokens that the backend charges outside of the refill. The reported remaining tokens
    /// shrink immediately, so that they never exceed the backend's.
    pub(super) fn take(&mut self, slot: &Slot, tokens: u64) {
        self.beside = self.beside.saturating_add(tokens);
        let remaining = slot.remaining.load(Relaxed);
        slot.remaining
            .store(remaining.saturating_sub(tokens), Relaxed);
    }

    /// Stores the granted tokens in a purse. Returns the time until which requests without tokens are
    /// rejected, or 0.
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
        // After a rejection, only requests that cost at least as much are rejected here; after a short
        // grant, requests of any cost.
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

/// `u64` nanoseconds cover 584 years.
fn nanos(time: std::time::Duration) -> u64 {
    crate::algorithm::saturating_nanos(time)
}
