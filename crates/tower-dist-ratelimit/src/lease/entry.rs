use std::{
    sync::atomic::Ordering::{Acquire, Relaxed, Release},
    time::Duration,
};

use super::{
    demand::{Claim, Demand, HOT, Shortage},
    prepaid::{AtomicU64, Prepaid},
};
use crate::{Decision, Source, algorithm::saturating_nanos as nanos, backend::OwnedCharge};

/// State of one key, read without a lock by requests that spend leased tokens.
#[derive(Debug, Default)]
pub(super) struct LeaseEntry {
    /// The tag of the entry's key, or 0 if the entry is free.
    tag: AtomicU64,
    /// Requests counted since the last update of the demand.
    pub(super) seen: AtomicU64,
    /// Two leases, so that a refill can arrive before the previous lease ends.
    leases: [Prepaid; 2],
    /// A refill in the background may start when at most this number of [lasting](Self::lasting) tokens remains: a
    /// third of the lasting tokens after the last answer to a refill.
    low: AtomicU64,
    /// Earliest time of the next refill, or `u64::MAX` while a refill is in flight.
    pub(super) not_before: AtomicU64,
    /// The limit, the remaining tokens and the time at which all tokens are free, from the last answer to a refill.
    /// [`charged_outside`](KeyState::charged_outside) reduces the remaining tokens.
    limit: AtomicU64,
    pub(super) remaining: AtomicU64,
    pub(super) full_at: AtomicU64,
}

impl LeaseEntry {
    #[inline]
    pub(super) fn tag(&self) -> u64 {
        self.tag.load(Acquire)
    }

    /// Takes the tokens of a request from a lease, and writes the decision. Then returns whether a refill in the
    /// background may start. If no lease of the request's key has enough tokens, returns `None`.
    #[inline]
    pub(super) fn pay(&self, claim: Claim, lease: u64, out: &mut Decision) -> Option<bool> {
        if !self.spend(claim) {
            return None;
        }
        let remaining = self.remaining.load(Relaxed);
        let remaining = remaining.saturating_add(self.held(claim.now));
        let (limit, full_after) = (self.limit.load(Relaxed), self.full_after(claim.now));
        let remaining = remaining.min(claim.burst);
        *out = Decision::allow(claim.cost, limit, remaining, full_after).by(Source::Lease);
        let is_low = self.lasting(claim.now, lease) <= self.low.load(Relaxed);
        Some(is_low && claim.now >= self.not_before.load(Relaxed))
    }

    /// Takes the tokens of a request from one lease, preferably from the lease that ends first. Returns whether it took
    /// them.
    #[inline]
    pub(super) fn spend(&self, claim: Claim) -> bool {
        let [one, other] = &self.leases;
        let is_mine = || self.tag() == claim.tag;
        let spend = |lease: &Prepaid| lease.spend(claim.cost, claim.now, is_mine);
        let [first, second] = if other.deadline() < one.deadline() {
            [other, one]
        } else {
            [one, other]
        };
        spend(first) || spend(second)
    }

    /// Returns the tokens that can be spent at `now`.
    pub(super) fn held(&self, now: u64) -> u64 {
        self.leases.iter().map(|lease| lease.tokens(now)).sum()
    }

    /// Returns the tokens that do not expire in the next quarter of a lease time, within which a refill should arrive.
    fn lasting(&self, now: u64, lease: u64) -> u64 {
        self.held(now.saturating_add(lease / 4))
    }

    fn full_after(&self, now: u64) -> Duration {
        Duration::from_nanos(self.full_at.load(Relaxed).saturating_sub(now))
    }

    /// Stores tokens in an empty or expired lease, or in place of the lease that ends first. The caller holds the lock.
    pub(super) fn fill(&self, tokens: u64, deadline: u64, now: u64) {
        let spare = |lease: &&Prepaid| (lease.tokens(now) > 0, lease.deadline());
        if let Some(lease) = self.leases.iter().min_by_key(spare) {
            lease.fill(tokens, deadline);
        }
    }

    /// Discards all tokens, and returns the number of unexpired ones. The caller holds the lock.
    pub(super) fn drain(&self, now: u64) -> u64 {
        let drain = |lease: &Prepaid| {
            let is_over = now >= lease.deadline();
            let discarded = lease.fill(0, 0);
            if is_over { 0 } else { discarded }
        };
        self.leases.iter().map(drain).sum()
    }

    /// Assigns the entry to another key. The caller holds the lock.
    pub(super) fn give_to(&self, tag: u64) {
        // The leases are emptied before the tag changes, and filled after it. So a thread that sees tokens
        // of the new key also sees the new tag.
        self.drain(0);
        // The first answer to a refill sets `limit`, `low` and `full_at`.
        self.seen.store(1, Relaxed);
        self.not_before.store(0, Relaxed);
        self.remaining.store(0, Relaxed);
        self.tag.store(tag, Release);
    }
}

/// State of an entry's key, guarded by the lock of its [`EntrySet`](super::table::EntrySet).
#[derive(Debug, Default)]
pub(super) struct KeyState {
    /// The policy, key and quota to which unused tokens are returned. `None` before the first refill, or if the key is
    /// too long to store.
    pub(super) owner: Option<OwnedCharge>,
    pub(super) demand: Demand,
    shortage: Shortage,
    /// Id of the refill in flight, or 0.
    pub(super) in_flight: u64,
    /// Id of the entry's latest refill, which may have been for an evicted key.
    pub(super) last_id: u64,
    /// Set by [`relieve`](Self::relieve), and cleared when a refill is sent. While it is set, a grant below `up_to` is
    /// no evidence of a shortage.
    refunded: bool,
    /// Tokens recorded by [`charged_outside`](Self::charged_outside) since the last refill was sent.
    outside: u64,
    /// Until this time, [`plan`](Self::plan) rejects requests that cost at least `reject_from`. While a refill is in
    /// flight, `plan` ignores this time. It then rejects such requests only during a
    /// [persistent](Shortage::is_persistent) shortage.
    reject_until: u64,
    /// Minimum cost, in tokens, of the requests that [`plan`](Self::plan) rejects.
    reject_from: u64,
    /// When the wait in the last answer to a refill ends, or 0 if that answer was no rejection with a wait.
    pub(super) due: u64,
}

/// How to handle a request that finds too few leased tokens, or whether to refill in the background.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// Send the waiting request, if there is one, to the backend without a refill.
    Exact,
    /// Reject the request because of a shortage of tokens.
    Reject(Decision),
    Refill(Refill),
}

/// A request to the backend for a lease, and for the tokens of the waiting request, if there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Refill {
    pub(super) tag: u64,
    pub(super) id: u64,
    /// When the refill was sent. The lease time starts here.
    pub(super) sent: u64,
    /// Tokens for the waiting request, or 0 if no request waits.
    pub(super) cost: u64,
    /// Maximum tokens for the request and the lease together.
    pub(super) up_to: u64,
    pub(super) burst: u64,
}

impl KeyState {
    pub(super) fn new(now: u64, last_id: u64) -> Self {
        Self {
            demand: Demand::begin(now),
            last_id,
            ..Self::default()
        }
    }

    /// Decides how to handle a request that finds too few leased tokens, or whether to refill in the background.
    pub(super) fn plan(&mut self, entry: &LeaseEntry, claim: Claim, lease: u64) -> Plan {
        let seen = entry.seen.swap(0, Relaxed);
        self.demand = self.demand.add(seen, claim.now, lease);
        let demand = self.demand.expected(lease);
        let reject_until = if self.in_flight == 0 {
            self.reject_until
        } else if self.shortage.is_persistent() {
            let pause = self.shortage.pause(demand, lease);
            claim.now.saturating_add(pause.max(1))
        } else {
            0
        };
        if claim.now < reject_until && claim.cost >= self.reject_from {
            return Plan::Reject(self.reject(entry, claim, reject_until));
        }
        // A background refill pays for no request: the lease has already paid for the request that starts the refill.
        let cost = if claim.ahead { 0 } else { claim.cost };
        self.charged_outside(entry, cost);
        if claim.now < entry.not_before.load(Relaxed) {
            return Plan::Exact;
        }
        let held = entry.lasting(claim.now, lease);
        let extra = claim.extra(demand, held, entry.remaining.load(Relaxed));
        // The first estimates are uncertain, so the measured demand must also be at least `HOT / 2`.
        if extra == 0 || demand < HOT || self.demand.per_lease() < HOT / 2 {
            if claim.ahead {
                // Requests that are paid from a lease usually do not call `plan` until `later`. The call would take the
                // lock, and probably start no refill yet.
                let later = claim.now.saturating_add(lease / 8);
                entry.not_before.store(later, Relaxed);
            }
            return Plan::Exact;
        }
        self.last_id += 1;
        (self.in_flight, self.refunded, self.outside) = (self.last_id, false, 0);
        // Until this refill ends, this entry starts no other refill, unless another key takes the entry.
        entry.not_before.store(u64::MAX, Relaxed);
        Plan::Refill(Refill {
            tag: claim.tag,
            id: self.last_id,
            sent: claim.now,
            cost,
            up_to: cost.saturating_add(extra),
            burst: claim.burst,
        })
    }

    /// Returns a rejection whose wait ends at `until`, or at the end of the backend's own wait if that is later.
    pub(super) fn reject(&self, entry: &LeaseEntry, claim: Claim, until: u64) -> Decision {
        // This process may call the backend again from `until` on, even if the backend's wait ends later. Other
        // instances may return tokens before that wait ends.
        let wait = Duration::from_nanos(until.max(self.due).saturating_sub(claim.now));
        // One lease must pay the whole cost, so a request can be rejected although two leases together hold the cost.
        // The rejection then reports at most `cost - 1` remaining tokens.
        let remaining = entry.held(claim.now).min(claim.cost - 1);
        let full_after = entry.full_after(claim.now).max(wait);
        let limit = entry.limit.load(Relaxed);
        Decision::reject(limit, remaining, Some(wait), full_after).by(Source::Lease)
    }

    /// Records tokens that the backend charges, or may charge, outside of the lease. Also subtracts them from the
    /// entry's remaining tokens.
    pub(super) fn charged_outside(&mut self, entry: &LeaseEntry, tokens: u64) {
        self.outside = self.outside.saturating_add(tokens);
        let remaining = entry.remaining.load(Relaxed);
        entry
            .remaining
            .store(remaining.saturating_sub(tokens), Relaxed);
    }

    /// Stores the granted tokens above the cost of the waiting request as a lease. Returns the new `reject_until`,
    /// which is 0 if no requests are to be rejected. If `refill` is not the refill [in flight](Self::in_flight),
    /// discards the tokens and returns 0.
    pub(super) fn answered(
        &mut self,
        entry: &LeaseEntry,
        refill: Refill,
        decision: &Decision,
        now: u64,
        lease: u64,
    ) -> u64 {
        if self.in_flight != refill.id {
            return 0;
        }
        let short = decision.granted < refill.up_to && !self.refunded;
        self.shortage = self.shortage.after(short);
        let until = if short {
            let wait = decision.retry_after.map_or(lease, nanos);
            let pause = self.shortage.pause(self.demand.expected(lease), lease);
            refill.sent.saturating_add(pause.max(wait).min(lease))
        } else {
            0
        };
        self.reject_until = until;
        // After a rejection with a wait, `plan` rejects only requests that cost at least `refill.cost`. After any other
        // answer, it can reject requests of any cost.
        (self.reject_from, self.due) = match decision.retry_after {
            Some(wait) if !decision.allowed => (refill.cost, now.saturating_add(nanos(wait))),
            _ => (0, 0),
        };
        entry.limit.store(decision.limit, Relaxed);
        let remaining = decision.remaining.saturating_sub(self.outside);
        entry.remaining.store(remaining, Relaxed);
        let full_at = now.saturating_add(nanos(decision.reset_after));
        entry.full_at.store(full_at, Relaxed);
        let extra = decision.granted.saturating_sub(refill.cost);
        if extra > 0 {
            entry.fill(extra, refill.sent.saturating_add(lease), now);
        }
        entry.low.store(entry.lasting(now, lease) / 3, Relaxed);
        self.ended(entry, refill, until);
        until
    }

    /// Ends a refill. Usually the next refill starts at `not_before` at the earliest. Until then, the backend decides
    /// one by one on requests that find too few leased tokens, or this process rejects them.
    pub(super) fn ended(&mut self, entry: &LeaseEntry, refill: Refill, not_before: u64) {
        if self.in_flight == refill.id {
            self.in_flight = 0;
            entry.not_before.store(not_before, Release);
        }
    }

    /// Clears the shortage, because a refund or a reset may return tokens.
    pub(super) fn relieve(&mut self, entry: &LeaseEntry) {
        (self.shortage, self.refunded, self.reject_until) = (Shortage::default(), true, 0);
        if self.in_flight == 0 {
            entry.not_before.store(0, Relaxed);
        }
    }
}
