use std::{ops::Range, time::Duration};

use smallvec::SmallVec;

use super::Outcome;
use crate::{
    Decision, Decisions, Quota,
    backend::{Answer, Backend, BackendError, Charge, JointDecision, PolicyId, Timeout},
    deny::SendTime,
    failover::Access,
    key::KeySink,
};

/// The charges of one request and the decisions on them. Filled in place, because a `Check` is large.
#[derive(Default)]
pub(crate) struct Check {
    pub(crate) sink: KeySink,
    pub(crate) charges: SmallVec<[PolicyCharge; 4]>,
    /// One decision per charge: empty at first, and filled with rejections while the backend decides.
    pub(crate) decisions: Decisions,
    /// The error that led to a rejection with [`Reason::Backend`](crate::Reason::Backend), if there is one.
    pub(crate) cause: Option<BackendError>,
    /// The pending part of the decision.
    pub(super) waiting: Option<Waiting>,
    /// The index of the policy that rejects the request for a missing key, if one does.
    pub(crate) keyless: usize,
}

/// A pending decision: first the quota look-ups, if there are any, then the query of the backend. Each of the two has
/// the whole timeout, so a slow look-up takes no time from the backend.
pub(super) enum Waiting {
    /// The quota look-ups, each with the index of its charge in the check.
    Quotas(Vec<(usize, TimedLookup)>),
    Backend(Timeout<JointDecision>, Access, Option<SendTime>),
}

type TimedLookup = Timeout<Option<Quota>>;

/// The charge of one policy that applies to the request.
#[derive(Clone)]
pub(crate) struct PolicyCharge {
    /// The index of the policy in the layer or limiter.
    pub(crate) rule: usize,
    pub(crate) id: PolicyId,
    /// The range of the key's bytes in the [`KeySink`] of the request.
    pub(crate) key: Range<usize>,
    pub(crate) cost: u64,
    /// The key's own quota, if it has one.
    pub(crate) quota: Option<Quota>,
}

impl PolicyCharge {
    /// Returns a charge to the empty key, without a quota of its own.
    #[inline]
    pub(super) fn new(rule: usize, id: PolicyId, cost: u64) -> Self {
        Self {
            rule,
            id,
            key: 0..0,
            cost,
            quota: None,
        }
    }

    #[inline]
    pub(crate) fn charge<'a>(&self, keys: &'a [u8]) -> Charge<'a> {
        Charge::new(self.id, self.key(keys), self.cost).with(self.quota)
    }

    /// Returns the bytes of the key. `keys` are the bytes of the sink that holds the key.
    #[inline]
    pub(crate) fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.key.clone()]
    }

    /// Returns whether the key's quota is zero.
    pub(crate) fn has_zero_quota(&self) -> bool {
        self.quota.is_some_and(|quota| quota.is_zero())
    }
}

impl Check {
    /// Returns the longest wait of the rejecting policies. `None` if one of them has no known wait or never allows the
    /// request, or if no policy rejects.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let rejected = self.decisions.iter().filter(|decision| !decision.allowed);
        let waits = rejected.map(|decision| decision.retry_after);
        waits
            .reduce(|longest, wait| Some(longest?.max(wait?)))
            .flatten()
    }

    /// Returns the time for which an allowed request waits in leaky queues.
    #[inline]
    pub(crate) fn delay(&self) -> Duration {
        let delays = self.decisions.iter().map(|decision| decision.delay);
        delays.max().unwrap_or_default()
    }

    pub(super) fn all_charges(&self) -> impl Iterator<Item = Charge<'_>> + Clone {
        self.charges.iter().map(|asked| asked.charge(self.keys()))
    }

    /// Returns the bytes that hold the keys.
    #[inline]
    pub(crate) fn keys(&self) -> &[u8] {
        self.sink.bytes()
    }

    /// Fills in the only charge and its decision. Returns the outcome.
    #[cold]
    pub(crate) fn decided(
        &mut self,
        sink: KeySink,
        asked: Option<PolicyCharge>,
        decision: Decision,
    ) -> Outcome {
        self.sink = sink;
        self.charges.extend(asked);
        self.decisions = [decision].into_iter().collect();
        Outcome::of(&decision)
    }

    /// Adds a quota look-up for the next charge.
    #[cold]
    pub(super) fn look_up(&mut self, quota: TimedLookup) {
        let lookup = (self.charges.len(), quota);
        match &mut self.waiting {
            Some(Waiting::Quotas(lookups)) => lookups.push(lookup),
            _ => self.waiting = Some(Waiting::Quotas(vec![lookup])),
        }
    }

    #[inline]
    pub(super) fn acquire(&mut self, backend: &dyn Backend) -> Answer {
        self.decisions.reject(self.charges.len());
        let keys = self.sink.bytes();
        // Most layers have one policy. A query of one policy is faster without the vector.
        if let [asked] = self.charges.as_slice() {
            return backend.acquire(&[asked.charge(keys)], &mut self.decisions);
        }
        let charges = self.charges.iter().map(|asked| asked.charge(keys));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        backend.acquire(&charges, &mut self.decisions)
    }
}
