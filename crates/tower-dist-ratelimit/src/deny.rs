mod denial;

use std::{
    collections::hash_map::RandomState,
    hash::BuildHasher,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

use tokio::time::Instant;

use self::denial::Denial;
use crate::{
    BuildError, Decision, Policy, Source,
    algorithm::saturating_nanos,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, OwnedCharge, PolicyId,
    },
    bracket::Bracket,
    terms::Terms,
};

/// Maximum number of remembered rejections, and of numbers of changes. A new rejection replaces an older one whose
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
    created: Instant,
    hasher: RandomState,
    /// When the last remembered rejection ends, in nanoseconds since the cache was created, or later. Once it has ended,
    /// the next look-up sets this to 0. From then on, a look-up costs only a look at this field.
    last_until: AtomicU64,
    places: Box<[Mutex<Option<Box<Denial>>>]>,
    /// The number of changes of all keys. A settlement or reset of a key through this cache counts as a change before
    /// and after it. Before a request, a new quota counts, too.
    changes: AtomicU64,
    /// The numbers of the latest changes of all keys. Several keys can share one; then changing one key invalidates all
    /// of them.
    latest: Box<[AtomicU64]>,
    /// Hashes of the quotas in the latest requests of all keys, or 0 before the first request. Shared by the same keys.
    /// Empty without dynamic quotas.
    quotas: Box<[AtomicU64]>,
    terms: Box<[Terms]>,
}

/// The time when a request was sent, as a time and as a number of changes.
#[derive(Clone, Copy)]
pub(crate) struct SendTime {
    pub(crate) at: Instant,
    changes: u64,
}

/// A backend that repeats remembered rejections.
pub(crate) struct Denying {
    pub(crate) inner: Arc<dyn Backend>,
    pub(crate) cache: Arc<DenyCache>,
    /// Whether the cache learns from the answers here. Otherwise the [guard](crate::limits) passes them to the cache,
    /// without a future around each answer.
    pub(crate) learns: bool,
}

impl DenyCache {
    /// Returns an empty cache of rejections by policies with these terms.
    pub(crate) fn new(terms: Box<[Terms]>) -> Self {
        let numbers = |len| (0..len).map(|_| AtomicU64::new(0)).collect();
        let is_dynamic = terms.iter().any(|terms| terms.is_dynamic);
        Self {
            created: Instant::now(),
            hasher: RandomState::new(),
            last_until: AtomicU64::new(0),
            places: (0..PLACES).map(|_| Mutex::default()).collect(),
            changes: AtomicU64::new(0),
            latest: numbers(PLACES),
            quotas: numbers(if is_dynamic { PLACES } else { 0 }),
            terms,
        }
    }

    /// Call it before the cache is queried and the request is sent.
    pub(crate) fn sent<'a>(&self, charges: impl Iterator<Item = Charge<'a>>) -> SendTime {
        // A charge of zero cost puts no quota in force.
        for charge in charges.filter(|charge| !self.quotas.is_empty() && charge.cost > 0) {
            let (tag, quota) = (self.tag(&charge), self.quota(&charge));
            let last = &self.quotas[number(tag)];
            if last.load(SeqCst) != quota {
                // First, so that a thread that finds the new quota finds the change, too.
                self.change(tag);
                last.store(quota, SeqCst);
            }
        }
        let (at, changes) = (Instant::now(), self.changes.load(SeqCst));
        SendTime { at, changes }
    }

    /// Returns the nanoseconds from creation to `time`.
    fn nanos(&self, time: Instant) -> u64 {
        saturating_nanos(time.saturating_duration_since(self.created))
    }

    /// Returns a 64-bit hash of a policy and a key.
    fn tag(&self, charge: &Charge<'_>) -> u64 {
        self.hasher.hash_one((charge.policy, charge.key))
    }

    /// Returns a hash of the charge's own quota. 0 if no policy has dynamic quotas.
    fn quota(&self, charge: &Charge<'_>) -> u64 {
        match self.quotas.is_empty() {
            true => 0,
            false => self.hasher.hash_one(charge.quota),
        }
    }

    /// Invalidates the remembered rejections of a key.
    fn change(&self, tag: u64) {
        let change = self.changes.fetch_add(1, SeqCst) + 1;
        self.latest[number(tag)].fetch_max(change, SeqCst);
    }

    /// Returns a hash of the request's policies, keys and quotas, and the number of the latest change of its keys.
    fn look_up<'a>(&self, charges: impl Iterator<Item = Charge<'a>>) -> (u64, u64) {
        let (mut whole, mut changes) = (0_u64, 0);
        for charge in charges {
            let tag = self.tag(&charge);
            changes = changes.max(self.latest[number(tag)].load(SeqCst));
            // A new quota changes the key, but a concurrent thread can miss the change. So the hash depends on the
            // quota, too.
            whole = whole.rotate_left(1) ^ tag.wrapping_add(self.quota(&charge));
        }
        (whole, changes)
    }

    fn place(&self, tag: u64) -> MutexGuard<'_, Option<Box<Denial>>> {
        let number = usize::try_from(tag % PLACES as u64).unwrap_or_default();
        let place = self.places[number].lock();
        place.unwrap_or_else(PoisonError::into_inner)
    }

    /// If a remembered rejection applies, writes its decisions to `out` and returns `true`.
    fn recall(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> bool {
        let last = self.last_until.load(SeqCst);
        if last == 0 {
            return false;
        }
        let now = self.nanos(Instant::now());
        if last <= now {
            let _ = self.last_until.compare_exchange(last, 0, SeqCst, SeqCst);
            return false;
        }
        let (tag, changes) = self.look_up(charges.iter().copied());
        let mut place = self.place(tag);
        let Some(denial) = place.as_deref().filter(|one| one.tag == tag) else {
            return false;
        };
        if now >= denial.until || changes > denial.changes {
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
            let decision = denial.decision(number, charge.cost, terms, now);
            *out = decision.by(Source::DenyCache);
        }
        true
    }

    /// Remembers a rejection. If the request took tokens, forgets the remembered rejection of an equal request, whose wait
    /// can now be too short.
    #[inline]
    pub(crate) fn learn<'a>(
        &self,
        sent: SendTime,
        charges: impl Iterator<Item = Charge<'a>> + Clone,
        verdict: &JointDecision,
    ) {
        let took_tokens = || verdict.decisions.iter().any(|one| one.granted > 0);
        if verdict.allowed && (self.last_until.load(SeqCst) == 0 || !took_tokens()) {
            return;
        }
        let (tag, changes) = self.look_up(charges.clone());
        if verdict.allowed {
            self.place(tag).take_if(|denial| denial.tag == tag);
            return;
        }
        let by_backend = |one: &Decision| matches!(one.source, Source::Backend);
        let is_complete = verdict.decisions.len() == charges.clone().count();
        if !is_complete || changes > sent.changes || !verdict.decisions.iter().all(by_backend) {
            return;
        }
        let rejected = verdict.decisions.iter().filter(|one| !one.allowed);
        // If several policies reject, the shortest wait counts. After that wait, the backend decides again.
        let waits = rejected.map(|decision| decision.retry_after.map_or(LONGEST, saturating_nanos));
        let wait = waits.min().unwrap_or(0).min(LONGEST);
        let until = self.nanos(sent.at).saturating_add(wait);
        let arrived = self.nanos(Instant::now());
        if arrived < until {
            self.last_until.fetch_max(until, SeqCst);
            *self.place(tag) = Some(Box::new(Denial {
                tag,
                changes: sent.changes,
                until,
                arrived,
                costs: charges.map(|charge| charge.cost).collect(),
                decisions: verdict.decisions.clone(),
            }));
        }
    }
}

/// Returns the number of a key in `latest` and `quotas`. Any bits of the hash would do.
fn number(tag: u64) -> usize {
    usize::try_from((tag >> 32) % PLACES as u64).unwrap_or_default()
}

impl Denying {
    /// Invalidates the remembered rejections of these keys, before and after a settlement or a reset.
    fn invalidate(&self, charges: &[Charge<'_>]) -> Bracket<impl Fn(u64) + use<>> {
        let cache = Arc::clone(&self.cache);
        let tags = charges.iter().map(|charge| self.cache.tag(charge));
        Bracket::new(tags, move |tag| cache.change(tag))
    }
}

impl Backend for Denying {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let sent = self
            .learns
            .then(|| self.cache.sent(charges.iter().copied()));
        if self.cache.recall(charges, out) {
            return Answer::Done(false);
        }
        match (sent, self.inner.acquire(charges, out)) {
            (Some(sent), Answer::Later(answer)) => {
                let owned = charges
                    .iter()
                    .map(|charge| (OwnedCharge::of(charge), charge.cost));
                let (cache, owned) = (Arc::clone(&self.cache), owned.collect::<Vec<_>>());
                Answer::Later(Box::pin(async move {
                    let verdict = answer.await;
                    if let Ok(verdict) = &verdict {
                        let charges = owned.iter().map(|(owned, cost)| owned.charge(*cost));
                        cache.learn(sent, charges, verdict);
                    }
                    verdict
                }))
            }
            // Only answers that cost a round trip are worth remembering.
            (_, answer) => answer,
        }
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
    use crate::Quota;

    /// Whether a new cache repeats a rejection of these charges with this decision alone.
    fn repeats(charges: &[Charge<'_>], decision: Decision) -> bool {
        let policy = Policy::new("p", Quota::per_hour(1));
        let cache = DenyCache::new(Terms::all(&[policy], &[PolicyId::new(0)]));
        let verdict = JointDecision {
            allowed: false,
            decisions: std::iter::once(decision).collect(),
        };
        let sent = cache.sent(charges.iter().copied());
        cache.learn(sent, charges.iter().copied(), &verdict);
        cache.recall(charges, &mut vec![Decision::default(); charges.len()])
    }

    fn rejection() -> Decision {
        let wait = Duration::from_millis(500);
        Decision::reject(1, 0, Some(wait), wait)
    }

    /// Tokens that one policy reserved for the rejected request may have been released since.
    #[test]
    fn a_rejection_made_in_parts_is_not_remembered() {
        let charges = [Charge::new(PolicyId::new(0), b"k", 1)];
        assert!(repeats(&charges, rejection()));
        assert!(!repeats(&charges, rejection().by(Source::Parts)));
    }

    /// A backend of the user can return too few decisions.
    #[test]
    fn a_rejection_without_a_decision_on_each_charge_is_not_remembered() {
        let charges = [b"a", b"b"].map(|key| Charge::new(PolicyId::new(0), key, 1));
        assert!(!repeats(&charges, rejection()));
    }
}
