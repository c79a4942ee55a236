use std::{ops::Range, time::Duration};

use smallvec::SmallVec;

use crate::{
    Decision, Decisions, Quota,
    backend::{Answer, Backend, BackendError, Charge, PolicyId},
    key::KeySink,
};

/// One request, as the store is asked about it, and what was decided. Filled in place, because moving it takes longer
/// than deciding.
pub(crate) struct Question {
    pub(crate) sink: KeySink,
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
    #[inline]
    pub(crate) fn key<'a>(&self, keys: &'a [u8]) -> &'a [u8] {
        &keys[self.key.clone()]
    }

    /// Whether the key is allowed nothing at all.
    pub(super) fn is_shut_out(&self) -> bool {
        is_zero(self.quota)
    }
}

/// Whether a quota allows nothing.
#[inline]
pub(super) fn is_zero(quota: Option<Quota>) -> bool {
    quota.is_some_and(|quota| quota.is_zero())
}

impl Default for Question {
    fn default() -> Self {
        Self::of(KeySink::new())
    }
}

impl Question {
    /// With the keys that are in the sink.
    #[inline]
    pub(crate) fn of(sink: KeySink) -> Self {
        Self {
            sink,
            asked: SmallVec::new(),
            decisions: Decisions::none(),
            cause: None,
            keyless: 0,
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
        let mut question = Self::of(sink);
        question.asked.push(asked);
        question.decisions.reject(1);
        question.decisions[0] = decision;
        question
    }

    /// The bytes that the keys are in.
    pub(crate) fn keys(&self) -> &[u8] {
        self.sink.bytes()
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
