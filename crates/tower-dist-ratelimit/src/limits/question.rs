use std::{ops::Range, time::Duration};

use smallvec::SmallVec;
use tokio::time::Instant;

use super::Limits;
use crate::{
    Algorithm, Decision, Decisions, Quota,
    backend::{Answer, Backend, BackendError, Charge, PolicyId},
    key::KeySink,
    ladder::Fallback,
    lease::Leasing,
};

/// One request, as the store is asked about it, and what was decided. Filled in place, because moving it takes longer
/// than deciding.
pub(crate) struct Question {
    pub(super) sink: KeySink,
    pub(crate) asked: SmallVec<[Asked; 2]>,
    /// One per policy that was asked, once there is a decision.
    pub(crate) decisions: Decisions,
    /// Why nobody has decided.
    pub(crate) cause: Option<BackendError>,
    /// The number of the policy whose key is missing, if a policy rejects the request for that.
    pub(crate) keyless: usize,
}

/// A policy that applies to the request.
#[derive(Clone)]
pub(crate) struct Asked {
    /// Its number in the layer.
    pub(crate) rule: usize,
    pub(crate) id: PolicyId,
    /// Where the key is in the sink.
    pub(crate) key: Range<usize>,
    pub(crate) cost: u64,
    /// What the key is allowed, if not what the policy says.
    pub(crate) quota: Option<Quota>,
}

impl Asked {
    #[inline]
    pub(crate) fn charge<'a>(&self, keys: &'a [u8]) -> Charge<'a> {
        Charge {
            quota: self.quota,
            ..Charge::new(self.id, self.key(keys), self.cost)
        }
    }

    /// The bytes of the key, among those of the question.
    pub(crate) fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.key.clone()]
    }

    /// Whether the key is allowed nothing at all.
    pub(super) fn is_shut_out(&self) -> bool {
        self.quota.is_some_and(|quota| quota.is_zero())
    }
}

impl Default for Question {
    fn default() -> Self {
        Self::new()
    }
}

impl Question {
    #[inline]
    pub(crate) fn new() -> Self {
        Self {
            sink: KeySink::new(),
            asked: SmallVec::new(),
            decisions: Decisions::none(),
            cause: None,
            keyless: 0,
        }
    }

    /// Puts back what was taken for a request that was not made after all. Nobody is left to wait for a store that takes its time,
    /// so that is told in the background.
    ///
    /// A place in a leaky queue stays taken: who waits behind it has a time already, and who got the place as the next in line would
    /// come together with the last of those. And what was taken from a window that is over is gone: the next one has nothing of it.
    /// `since` is when it was taken; if that is not given, a moment ago.
    pub(crate) fn take_back(&self, limits: &Limits, since: Option<Instant>) {
        let decided = self.asked.iter().zip(self.decisions.iter());
        let is_over =
            |decision: &Decision| since.is_some_and(|then| then.elapsed() >= decision.reset_after);
        let taken = decided.filter(|(asked, decision)| {
            let comes_back = match limits.rules[asked.rule].policy.algorithm() {
                Algorithm::LeakyQueue { .. } => false,
                algorithm => !(algorithm.has_windows() && is_over(decision)),
            };
            decision.granted > 0 && comes_back
        });
        for (asked, decision) in taken {
            let refund = i64::try_from(asked.cost).map_or(i64::MIN, |cost| -cost);
            let charge = asked.charge(self.keys());
            limits.correct(decision.source, asked.rule, charge, refund);
        }
    }

    /// The longest wait that a policy which rejected asks for; `None` for ever.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        let rejected = self.decisions.iter().filter(|decision| !decision.allowed);
        let waits = rejected.map(|decision| decision.retry_after);
        waits
            .reduce(|longest, wait| Some(longest?.max(wait?)))
            .flatten()
    }

    /// How long a request that passes has to wait before it does. Zero, but for leaky queues.
    #[inline]
    pub(crate) fn delay(&self) -> Duration {
        let delays = self.decisions.iter().map(|decision| decision.delay);
        delays.max().unwrap_or_default()
    }

    /// About one policy, decided already.
    pub(crate) fn one(sink: KeySink, asked: Asked, decision: Decision) -> Self {
        let mut question = Self {
            sink,
            ..Self::new()
        };
        question.asked.push(asked);
        question.decisions.reject(1);
        question.decisions[0] = decision;
        question
    }

    /// The bytes that the keys are in.
    pub(crate) fn keys(&self) -> &[u8] {
        self.sink.bytes()
    }

    /// Asks who decides while the store does not.
    pub(super) fn ask_instead(&mut self, fallback: &Fallback) -> Result<bool, BackendError> {
        self.decisions.reject(self.asked.len());
        let keys = self.sink.bytes();
        let asked = self.asked.iter();
        let charges = asked.map(|asked| (asked.rule, asked.charge(keys)));
        fallback.acquire(charges, &mut self.decisions)
    }

    /// Pays for the request with a lease, while the store is left alone.
    pub(super) fn spend(&mut self, leasing: Option<&Leasing>) -> bool {
        let (Some(leasing), [asked]) = (leasing, self.asked.as_slice()) else {
            return false;
        };
        self.decisions.reject(1);
        let charge = asked.charge(self.sink.bytes());
        leasing.spend(&[charge], &mut self.decisions)
    }

    #[inline]
    pub(super) fn ask(&mut self, backend: &dyn Backend) -> Answer {
        self.decisions.reject(self.asked.len());
        let keys = self.sink.bytes();
        // One policy is what most layers have. Without the vector it takes half the time.
        if let [asked] = self.asked.as_slice() {
            return backend.acquire(&[asked.charge(keys)], &mut self.decisions);
        }
        let charges = self.asked.iter().map(|asked| asked.charge(keys));
        let charges: SmallVec<[Charge<'_>; 4]> = charges.collect();
        backend.acquire(&charges, &mut self.decisions)
    }
}
