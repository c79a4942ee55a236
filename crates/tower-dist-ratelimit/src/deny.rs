mod denial;

use std::{
    collections::hash_map::RandomState,
    future::poll_fn,
    hash::BuildHasher,
    mem,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Poll, ready},
};

use smallvec::SmallVec;
use tokio::time::Instant;

use self::denial::Denial;
use crate::{
    BuildError, Decision, Policy, Source,
    algorithm::saturating_nanos,
    backend::{Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, PolicyId},
    bracket::Bracket,
    terms::Terms,
};

/// Maximum number of remembered rejections, and number of key versions. A new rejection replaces an older one whose
/// request hashes to the same place. At worst, the backend gets the same calls as without a cache.
const PLACES: usize = 4096;

/// Maximum time for which a rejection is repeated, in nanoseconds. The time is short because this instance does not see
/// refunds by other instances.
const LONGEST: u64 = 1_000_000_000;

/// Remembers rejections of the backend, and repeats them locally: at most until their wait ends, and for at most 1 s.
///
/// In the backend, the wait of a rejection starts at the decision. The cache counts the wait from the time when the
/// request is sent, which is earlier. So the cache stops repeating the rejection no later than the wait ends.
pub(crate) struct DenyCache {
    inner: Arc<dyn Backend>,
    denials: Arc<Denials>,
}

/// State shared with pending requests, whose futures can outlive the [`DenyCache`].
struct Denials {
    created: Instant,
    hasher: RandomState,
    places: Box<[Mutex<Option<Box<Denial>>>]>,
    /// The versions of all keys. Several keys can share a version; then invalidating one key invalidates all
    /// of them.
    versions: Box<[Version]>,
    terms: Box<[Terms]>,
}

/// The version of a key. The number grows before and after each settlement or reset of the key through this cache. It
/// also grows when a look-up has another quota than the previous one.
#[derive(Default)]
struct Version {
    number: AtomicU64,
    /// Hash of the quota in the previous look-up, or 0 if that look-up had none.
    quota: AtomicU64,
}

/// A look-up of a request in the deny cache.
#[derive(Clone, Copy)]
struct Lookup {
    /// Hash of the request's policies, keys and quotas.
    tag: u64,
    /// The time of the look-up, in nanoseconds since the cache was created.
    sent: u64,
    /// Sum of the versions of the request's keys at the time of the look-up.
    version: u64,
}

impl DenyCache {
    /// Wraps a backend in which `policies` are registered as `ids`.
    pub(crate) fn new(inner: Arc<dyn Backend>, policies: &[Policy], ids: &[PolicyId]) -> Self {
        Self {
            inner,
            denials: Arc::new(Denials {
                created: Instant::now(),
                hasher: RandomState::new(),
                places: (0..PLACES).map(|_| Mutex::default()).collect(),
                versions: (0..PLACES).map(|_| Version::default()).collect(),
                terms: Terms::all(policies, ids),
            }),
        }
    }

    /// Invalidates the remembered rejections of these keys, before and after a settlement or a reset.
    fn invalidate(&self, charges: &[Charge<'_>]) -> Bracket<impl Fn(u64) + use<>> {
        let denials = Arc::clone(&self.denials);
        let tags = charges.iter().map(|charge| self.denials.tag(charge));
        Bracket::new(tags, move |tag| {
            denials.version(tag).number.fetch_add(1, SeqCst);
        })
    }
}

impl Denials {
    /// Returns the nanoseconds since creation.
    fn now(&self) -> u64 {
        saturating_nanos(Instant::now().saturating_duration_since(self.created))
    }

    /// Returns a 64-bit hash of a policy and a key.
    fn tag(&self, charge: &Charge<'_>) -> u64 {
        self.hasher.hash_one((charge.policy, charge.key))
    }

    fn version(&self, tag: u64) -> &Version {
        // Any bits of the hash would do.
        let number = usize::try_from((tag >> 32) % PLACES as u64).unwrap_or_default();
        &self.versions[number]
    }

    fn lookup(&self, charges: &[Charge<'_>]) -> Lookup {
        let sent = self.now();
        let (mut whole, mut sum) = (0_u64, 0_u64);
        for charge in charges {
            let tag = self.tag(charge);
            let hash = |quota| self.hasher.hash_one(quota).max(1);
            let quota = charge.quota.map_or(0, hash);
            let version = self.version(tag);
            if version.quota.load(SeqCst) != quota {
                version.quota.store(quota, SeqCst);
                version.number.fetch_add(1, SeqCst);
            }
            sum = sum.wrapping_add(version.number.load(SeqCst));
            // A new quota changes the key's version, but a concurrent thread can miss the change. So the tag of the
            // look-up depends on the quota, too.
            whole = whole.rotate_left(1) ^ tag.wrapping_add(quota);
        }
        Lookup {
            tag: whole,
            sent,
            version: sum,
        }
    }

    fn place(&self, tag: u64) -> MutexGuard<'_, Option<Box<Denial>>> {
        let number = usize::try_from(tag % PLACES as u64).unwrap_or_default();
        let place = self.places[number].lock();
        place.unwrap_or_else(PoisonError::into_inner)
    }

    /// If a remembered rejection applies, writes its decisions to `out` and returns `true`.
    fn recall(&self, lookup: &Lookup, charges: &[Charge<'_>], out: &mut [Decision]) -> bool {
        let mut place = self.place(lookup.tag);
        let Some(denial) = place.as_deref().filter(|one| one.lookup.tag == lookup.tag) else {
            return false;
        };
        if lookup.sent >= denial.until || lookup.version != denial.lookup.version {
            *place = None;
            return false;
        }
        if !denial.covers(charges) || out.len() != charges.len() {
            return false;
        }
        for (number, (charge, out)) in charges.iter().zip(out).enumerate() {
            let Some(terms) = Terms::of(&self.terms, charge) else {
                return false;
            };
            let decision = denial.decision(number, charge.cost, terms, lookup.sent);
            *out = decision.by(Source::DenyCache);
        }
        true
    }

    fn remember(&self, lookup: Lookup, costs: SmallVec<[u64; 2]>, verdict: &JointDecision) {
        let decisions = &verdict.decisions;
        if verdict.allowed && decisions.iter().any(|one| one.granted > 0) {
            // The allowed request took tokens, so the wait of a remembered rejection can be too short. Forgets that
            // rejection.
            self.place(lookup.tag)
                .take_if(|denial| denial.lookup.tag == lookup.tag);
            return;
        }
        let by_backend = |one: &Decision| matches!(one.source, Source::Backend);
        let is_complete = decisions.len() == costs.len() && decisions.iter().all(by_backend);
        if verdict.allowed || !is_complete {
            return;
        }
        let rejected = decisions.iter().filter(|decision| !decision.allowed);
        // If several policies reject, the shortest wait counts. After that wait, the backend decides again.
        let waits = rejected.map(|decision| decision.retry_after.map_or(LONGEST, saturating_nanos));
        let wait = waits.min().unwrap_or(0).min(LONGEST);
        let (until, arrived) = (lookup.sent.saturating_add(wait), self.now());
        if arrived < until {
            *self.place(lookup.tag) = Some(Box::new(Denial {
                lookup,
                until,
                arrived,
                costs,
                decisions: decisions.clone(),
            }));
        }
    }
}

impl Backend for DenyCache {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let lookup = self.denials.lookup(charges);
        if self.denials.recall(&lookup, charges, out) {
            return Answer::Done(false);
        }
        let mut answer = match self.inner.acquire(charges, out) {
            Answer::Later(answer) => answer,
            // Only answers that cost a round trip are worth remembering.
            immediate => return immediate,
        };
        let mut costs = charges.iter().map(|charge| charge.cost).collect();
        let denials = Arc::clone(&self.denials);
        // Not an async block, because that would copy the verdict several times.
        Answer::Later(Box::pin(poll_fn(move |cx| {
            let verdict = ready!(answer.as_mut().poll(cx));
            if let Ok(verdict) = &verdict {
                denials.remember(lookup, mem::take(&mut costs), verdict);
            }
            Poll::Ready(verdict)
        })))
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let invalidate = self.invalidate(charges);
        invalidate.answer(self.inner.settle(charges, delta))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let invalidate = self.invalidate(&[Charge::new(policy, key, 0)]);
        invalidate.future(self.inner.reset(policy, key))
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
        let denying = DenyCache::new(Arc::new(Memory::default()), &[policy], &[id]);
        let DenyCache { denials, .. } = denying;
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
            denials.remember(denials.lookup(&charges), costs, &verdict);
            let mut out = [Decision::default()];
            let recalled = denials.recall(&denials.lookup(&charges), &charges, &mut out);
            assert_eq!(recalled, remembers);
        }
    }
}
