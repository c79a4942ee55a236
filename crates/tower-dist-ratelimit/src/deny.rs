mod denial;
mod marks;

use std::{
    collections::hash_map::RandomState,
    hash::{BuildHasher, Hasher},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use self::{
    denial::{Denial, Pace},
    marks::{Guard, Marks},
};
use crate::{
    BuildError, Decision, Policy, Source,
    algorithm::saturating_nanos,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Capabilities, Charge, JointDecision, PolicyId,
    },
};

/// Maximum remembered rejections. A new one replaces the previous one in its place, so invented keys
/// cost the backend no more calls than they would without a cache.
const PLACES: usize = 4096;

/// Longest time for which a rejection is remembered, in nanoseconds. It is short because refunds by
/// other instances are not visible here.
const LONGEST: u64 = 1_000_000_000;

/// Repeats the backend's rejections locally until their wait ends.
///
/// The backend decides after the request was sent, and its wait starts at the decision. Here the wait
/// starts when the request is sent, so it ends no later. No request is rejected that the backend would
/// allow.
pub(crate) struct Denying {
    inner: Arc<dyn Backend>,
    denials: Arc<Denials>,
}

/// State shared with pending requests, whose futures can outlive the cache.
struct Denials {
    created: Instant,
    hasher: RandomState,
    places: Box<[Mutex<Option<Box<Denial>>>]>,
    marks: Marks,
    /// Token rate of each policy.
    paces: SmallVec<[(PolicyId, Pace); 4]>,
}

/// A request as the deny cache sees it.
struct Asked {
    tag: u64,
    /// When the request was sent.
    now: u64,
    /// Sum of its keys' versions at that time.
    marks: u64,
}

impl Denying {
    /// Wraps a backend that knows these policies by these ids.
    pub(crate) fn new(inner: Arc<dyn Backend>, policies: &[Policy], ids: &[PolicyId]) -> Self {
        let paces = policies.iter().zip(ids);
        Self {
            inner,
            denials: Arc::new(Denials {
                created: Instant::now(),
                hasher: RandomState::new(),
                places: (0..PLACES).map(|_| Mutex::default()).collect(),
                marks: Marks::new(),
                paces: paces.map(|(policy, &id)| (id, Pace::of(policy))).collect(),
            }),
        }
    }
}

impl Denials {
    /// Returns the nanoseconds since creation.
    fn now(&self) -> u64 {
        saturating_nanos(Instant::now().saturating_duration_since(self.created))
    }

    /// Returns a 64-bit hash of a policy and a key.
    fn tag(&self, policy: PolicyId, key: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(policy.number());
        hasher.write(key);
        hasher.finish()
    }

    fn asked(&self, charges: &[Charge<'_>]) -> Asked {
        let now = self.now();
        let (mut whole, mut marks) = (self.hasher.build_hasher(), 0_u64);
        for charge in charges {
            let tag = self.tag(charge.policy, charge.key);
            whole.write_u64(tag);
            // A new quota changes the key's version, but threads that race can miss that. So the tag
            // depends on the quota, too.
            whole.write_u64(charge.quota.map_or(0, marks::bits));
            marks = marks.wrapping_add(self.marks.of(tag, charge.quota));
        }
        Asked {
            tag: whole.finish(),
            now,
            marks,
        }
    }

    fn place(&self, tag: u64) -> MutexGuard<'_, Option<Box<Denial>>> {
        let number = usize::try_from(tag % PLACES as u64).unwrap_or_default();
        self.places[number]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn pace(&self, charge: &Charge<'_>) -> Pace {
        let own = self.paces.iter().find(|(id, _)| *id == charge.policy);
        let own = own.map_or(Pace::default(), |(_, pace)| *pace);
        charge.quota.map_or(own, |quota| own.with(quota))
    }

    /// Writes the decisions and returns true if a remembered rejection applies.
    fn recall(&self, asked: &Asked, charges: &[Charge<'_>], out: &mut [Decision]) -> bool {
        let mut place = self.place(asked.tag);
        let Some(denial) = place.as_deref().filter(|denial| denial.tag == asked.tag) else {
            return false;
        };
        if asked.now >= denial.until || asked.marks != denial.marks {
            *place = None;
            return false;
        }
        if !denial.covers(charges) || out.len() != charges.len() {
            return false;
        }
        for (number, (charge, out)) in charges.iter().zip(out).enumerate() {
            *out = Decision {
                source: Source::DenyCache,
                ..denial.decision(number, charge.cost, self.pace(charge), asked.now)
            };
        }
        true
    }

    fn remember(&self, asked: &Asked, costs: SmallVec<[u64; 2]>, verdict: &JointDecision) {
        let of_the_store = |decision: &Decision| matches!(decision.source, Source::Backend);
        if verdict.allowed && verdict.decisions.iter().any(|one| one.granted > 0) {
            return self.no_longer(asked.tag);
        }
        if verdict.allowed
            || verdict.decisions.len() != costs.len()
            || !verdict.decisions.iter().all(of_the_store)
        {
            return;
        }
        let rejected = verdict
            .decisions
            .iter()
            .filter(|decision| !decision.allowed);
        // If several policies reject, the shortest wait counts: then the backend decides again.
        let waits = rejected.map(|decision| decision.retry_after.map_or(LONGEST, saturating_nanos));
        let wait = waits.min().unwrap_or(0).min(LONGEST);
        let (until, told) = (asked.now.saturating_add(wait), self.now());
        if told < until {
            *self.place(asked.tag) = Some(Box::new(Denial {
                tag: asked.tag,
                marks: asked.marks,
                until,
                told,
                costs,
                decisions: verdict.decisions.clone(),
            }));
        }
    }

    /// Forgets a rejection after a cheaper request for the same keys was allowed: fewer tokens remain
    /// now, and the wait is longer.
    fn no_longer(&self, tag: u64) {
        let mut place = self.place(tag);
        if place.as_deref().is_some_and(|denial| denial.tag == tag) {
            *place = None;
        }
    }

    /// Invalidates the rejections of these keys now and when the guard is dropped. The backend returns or
    /// charges the tokens at some time in between.
    /// back, or to take, is there some time in between.
    fn forget(self: &Arc<Self>, tags: impl Iterator<Item = u64>) -> Guard {
        Guard::new(Arc::clone(self), tags.collect())
    }
}

impl Backend for Denying {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let asked = self.denials.asked(charges);
        if self.denials.recall(&asked, charges, out) {
            return Answer::Done(false);
        }
        let answer = match self.inner.acquire(charges, out) {
            Answer::Later(answer) => answer,
            // Only answers that cost a round trip are worth remembering.
            at_once => return at_once,
        };
        let costs = charges.iter().map(|charge| charge.cost).collect();
        let denials = Arc::clone(&self.denials);
        Answer::Later(Box::pin(async move {
            let verdict = answer.await?;
            denials.remember(&asked, costs, &verdict);
            Ok(verdict)
        }))
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let tags = charges.iter();
        let tags = tags.map(|charge| self.denials.tag(charge.policy, charge.key));
        let guard = self.denials.forget(tags);
        match self.inner.settle(charges, delta) {
            Answer::Later(answer) => Answer::Later(Box::pin(async move {
                let _guard = guard;
                answer.await
            })),
            answer => answer,
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let tag = self.denials.tag(policy, key);
        let guard = self.denials.forget(std::iter::once(tag));
        let done = self.inner.reset(policy, key);
        Box::pin(async move {
            let _guard = guard;
            done.await
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Quota, backend::Memory};

    /// Tokens that one policy reserved for the rejected request may have been released since.
    #[test]
    fn a_rejection_made_in_parts_is_not_remembered() {
        let (policy, id) = (Policy::new("p", Quota::per_hour(1)), PolicyId::new(0));
        let denying = Denying::new(Arc::new(Memory::default()), &[policy], &[id]);
        let Denying { denials, .. } = denying;
        let charges = [Charge::new(id, b"k", 1)];
        for (source, remembers) in [(Source::Parts, false), (Source::Backend, true)] {
            let wait = Duration::from_millis(500);
            let decision = Decision {
                source,
                ..Decision::reject(1, 0, Some(wait), wait)
            };
            let verdict = JointDecision {
                allowed: false,
                decisions: std::iter::once(decision).collect(),
            };
            let costs = [1].into_iter().collect();
            denials.remember(&denials.asked(&charges), costs, &verdict);
            let mut out = [Decision::default()];
            let recalled = denials.recall(&denials.asked(&charges), &charges, &mut out);
            assert_eq!(recalled, remembers);
        }
    }
}
