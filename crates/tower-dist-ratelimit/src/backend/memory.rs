mod atomic_table;
mod context;
mod fingerprint;
mod line;
mod sharded_table;
mod single_policy;
mod slots;
mod store;
mod stores;
mod sync;

use std::{any::Any, array, fmt, sync::Arc};

use smallvec::SmallVec;

pub(crate) use self::store::Store;
use self::{
    context::{MemoryClock, MemoryContext},
    fingerprint::Fingerprint,
    sync::{Locked, Mutex, lock_all},
};
pub(crate) use self::{
    single_policy::SinglePolicy,
    stores::{NewStore, any_store, bucket_store},
};
use super::{Answer, Backend, BackendError, BoxFuture, Charge, PolicyId, Registry};
use crate::{BuildError, Decision, Policy, algorithm::Take, key::KeyBytes};

/// Number of locks for keys of policies that are decided together: enough that concurrent requests with different keys
/// seldom need the same lock.
const LOCKS: usize = 256;

/// A backend that keeps the state of all keys in this process.
///
/// Each instance of a service counts separately: behind a load balancer with twelve instances, a client gets up to
/// twelve times the limit.
///
/// # Default
///
/// Room for 100,000 keys per policy. Memory is bounded, and is used as keys arrive. Approximate bytes per key:
///
/// | algorithm | bytes |
/// |---|---|
/// | buckets, queues and fixed windows | 32 |
/// | fixed windows from the first request | 50 |
/// | sliding windows | 85 |
/// | buckets and queues with dynamic quotas | 100 |
/// | sliding windows of `n` buckets | 100, and 8 for each bucket |
/// | sliding window logs | 100, and 16 to 37 for each request |
///
/// A large table has 1.5 to 2 places for each key of the capacity. If a new key finds no free place, it replaces one of
/// at most sixteen random keys, usually the least limited one. The replaced key loses its state. A key without used
/// tokens can be replaced at no loss. So the capacity has to cover only the keys that have *used tokens at the same
/// time*. Even if these keys are as many as the capacity, only about one new key in 2,000 to 3,000 replaces one of
/// them. There is no clean-up to run. An attacker who invents keys can replace other keys, so use keys that cost
/// something to get.
///
/// # Errors
///
/// Building a limiter fails if a quota cannot be counted (see [`Quota`](crate::Quota)), or if the limiter has more than
/// 16 policies. It also fails if the system does not provide the memory of the empty tables. A check of a limiter never
/// fails because of its `Memory`.
///
/// # Sharing
///
/// Limiters over the same `Arc<Memory>` share their counts if their sets of policies are equal: the same names, quotas,
/// algorithms, [`dynamic_quotas`](Policy::dynamic_quotas) and [`colocate`](Policy::colocate) settings in the same
/// order. So a limiter that is rebuilt keeps its counts. How a policy extracts its key is not compared: give policies
/// different names if their counts must be separate.
///
/// A set with a changed quota is a new set with separate counts. The old set keeps its memory until the `Memory` is
/// dropped. For quotas that change often, use [dynamic quotas](crate::Policy::quota_by), or a `Memory` per rebuild.
///
/// # Cost
///
/// A limiter with one policy that is a bucket, a queue or a fixed window usually decides with one compare-and-swap: no
/// lock, no allocation. A short lock is necessary for a key's first request, for several policies, for buckets and
/// queues with dynamic quotas, and for all other algorithms. Requests wait for each other's locks only if they have the
/// same key, or by chance the same lock. The memory keeps a SipHash-1-3 of each key with a random seed, and not the key
/// itself.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
///
/// let limiter = Limiter::new(Memory::with_capacity(1_000_000), Policy::new("per-user", Quota::per_hour(5)))?;
/// assert_eq!(limiter.check("alice").await?.remaining, 4);
/// # Ok(())
/// # }
/// ```
pub struct Memory {
    capacity: usize,
    context: MemoryContext,
    registry: Registry<Arc<[PolicyStore]>>,
    /// Locks for the keys of policies that are decided together. See [`Memory::lock`].
    locks: Box<[Mutex<()>; LOCKS]>,
}

/// The store of one policy.
struct PolicyStore {
    store: Arc<dyn Store>,
    /// Whether the policy is decided together with others.
    in_set: bool,
}

/// A charge with its store.
struct StoreCharge<'a> {
    store: &'a dyn Store,
    key: Fingerprint,
    take: Take<'a>,
    lock: Option<usize>,
}

impl Memory {
    /// A memory with room for `keys` keys per policy. 0 counts as 1.
    #[must_use]
    pub fn with_capacity(keys: usize) -> Self {
        Self::new(keys, MemoryClock::tokio())
    }

    /// Like [`with_capacity`](Self::with_capacity), but measures time with the processor's counter, by [quanta]. A
    /// decision takes about a third less time.
    ///
    /// A paused clock of tokio does not stop the counter. Adjustments of the system's clock do not change the counter's
    /// speed. Where the processor has no reliable counter, the system's monotonic clock is read instead.
    ///
    /// # Cost
    ///
    /// The first quanta clock of a process is calibrated against the system's clock. This blocks for up to 200 ms.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let memory = Memory::with_processor_clock(100_000);
    /// let limiter = Limiter::new(memory, Policy::new("per-user", Quota::per_hour(5)))?;
    /// assert_eq!(limiter.check("alice").await?.remaining, 4);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [quanta]: https://docs.rs/quanta
    #[cfg(feature = "processor-clock")]
    #[must_use]
    pub fn with_processor_clock(keys: usize) -> Self {
        Self::new(keys, MemoryClock::processor())
    }

    fn new(capacity: usize, clock: MemoryClock) -> Self {
        Self {
            capacity,
            context: MemoryContext::new(clock),
            registry: Registry::default(),
            locks: Box::new(array::from_fn(|_| Mutex::new(()))),
        }
    }

    /// Returns the number of keys that have a state, over all policies.
    ///
    /// The state of a key without used tokens can stay until another key needs its place. So this number shows the
    /// memory in use, not the number of limited keys. A key under two policies counts twice.
    ///
    /// # Cost
    ///
    /// Reads all places for keys: milliseconds for a million keys. For some algorithms, each part of a table is locked
    /// while it is read. A decision on a key in that part then waits.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::sync::Arc;
    /// use tower_dist_ratelimit::{Limiter, Policy, Quota, backend::Memory};
    ///
    /// let memory = Arc::new(Memory::default());
    /// let limiter = Limiter::new(Arc::clone(&memory), Policy::new("per-user", Quota::per_second(5)))?;
    /// assert!(memory.is_empty());
    /// limiter.check("alice").await?;
    /// limiter.check("bob").await?;
    /// assert_eq!(memory.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        let tables = self.registry.states().flat_map(|tables| tables.iter());
        tables.map(|table| table.store.len()).sum()
    }

    /// Returns whether no key has a state.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    #[inline]
    fn table(&self, charge: &Charge<'_>) -> Result<&PolicyStore, BackendError> {
        let (tables, place) = self.registry.find(charge)?;
        Ok(&tables[place])
    }

    /// Returns the policy for decisions without the [`Backend`] trait. `None` if the backend is not a memory, or if the
    /// policy is decided together with others.
    pub(crate) fn single(backend: &dyn Backend, policy: PolicyId) -> Option<SinglePolicy> {
        let any: &dyn Any = backend;
        if let Some(shared) = any.downcast_ref::<Arc<dyn Backend>>() {
            return Self::single(&**shared, policy);
        }
        let shared = any.downcast_ref::<Arc<Self>>().map(Arc::as_ref);
        let this = shared.or_else(|| any.downcast_ref::<Self>())?;
        let table = this.table(&Charge::new(policy, &[], 0)).ok()?;
        let store: Arc<dyn Any + Send + Sync> = Arc::clone(&table.store) as _;
        (!table.in_set).then(|| SinglePolicy {
            context: this.context.clone(),
            store: Arc::clone(&table.store),
            bucket: store.downcast().ok(),
        })
    }

    fn target<'a>(&'a self, charge: &'a Charge<'_>) -> Result<StoreCharge<'a>, BackendError> {
        let table = self.table(charge)?;
        let key = self.context.hash(KeyBytes::of(charge.key));
        table.store.prefetch(key);
        let salt = charge.policy.number() as usize;
        Ok(StoreCharge {
            store: &*table.store,
            key,
            take: Take::of(charge),
            lock: table.in_set.then(|| key.spread(salt, LOCKS)),
        })
    }

    /// Locks the keys whose policies are decided together with others. Every charge to such a policy takes its key's
    /// lock. So no other request charges these keys until the locks are dropped.
    fn lock(&self, asked: &[StoreCharge<'_>]) -> Locked<'_> {
        lock_all(&*self.locks, asked.iter().filter_map(|one| one.lock))
    }

    /// A faster [`decide`](Self::decide) for one charge to a policy that is not decided together with others. Returns
    /// `None` in all other cases, and if [`table`](Self::table) fails.
    #[inline]
    fn decide_one(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Option<bool> {
        let ([charge], [out]) = (charges, out) else {
            return None;
        };
        let table = self.table(charge).ok().filter(|table| !table.in_set)?;
        let key = self.context.hash(KeyBytes::of(charge.key));
        let take = Take::of(charge);
        *out = table.store.charge(key, self.context.now(), &take);
        Some(out.allowed)
    }

    #[inline(never)]
    fn decide(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Result<bool, BackendError> {
        let asked = self.ask_all(charges)?;
        let _locked = self.lock(&asked);
        let now = self.context.now();
        for (one, out) in asked.iter().zip(&mut *out) {
            *out = one.store.check(one.key, now, &one.take);
        }
        let allowed = out.iter().all(|out| out.allowed);
        for (one, out) in asked.iter().zip(out) {
            if allowed {
                *out = one.store.charge(one.key, now, &one.take);
                continue;
            }
            if out.allowed {
                // Another policy rejects the request, so this policy is not charged. A check of zero cost reports all
                // of this policy's remaining tokens.
                *out = one.store.check(one.key, now, &one.take.look());
            }
            if one.take.cost > 0 {
                one.store.adopt(one.key, now, &one.take);
            }
        }
        Ok(allowed)
    }

    fn ask_all<'a>(
        &'a self,
        charges: &'a [Charge<'_>],
    ) -> Result<SmallVec<[StoreCharge<'a>; 4]>, BackendError> {
        // Pushed one by one, because collecting into a `Result` would move the vector more often.
        let mut asked = SmallVec::new();
        for charge in charges {
            asked.push(self.target(charge)?);
        }
        Ok(asked)
    }

    fn correct(&self, charges: &[Charge<'_>], delta: i64) -> Result<(), BackendError> {
        let asked = self.ask_all(charges)?;
        let _locked = self.lock(&asked);
        let now = self.context.now();
        for one in asked {
            let refund = i64::try_from(one.take.cost).unwrap_or(i64::MAX);
            one.store
                .settle(one.key, now, &one.take, delta.max(-refund));
        }
        Ok(())
    }
}

impl Backend for Memory {
    #[inline]
    fn is_remote(&self) -> bool {
        false
    }

    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        let table = |policy: &Policy| {
            Ok(PolicyStore {
                store: policy.new_store(self.capacity)?,
                in_set: policies.len() > 1,
            })
        };
        self.registry
            .register(policies, || policies.iter().map(table).collect())
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        if let Some(allowed) = self.decide_one(charges, out) {
            return Answer::Done(allowed);
        }
        self.decide(charges, out)
            .map_or_else(Answer::Failed, Answer::Done)
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        self.correct(charges, delta)
            .map_or_else(Answer::Failed, |()| Answer::Done(true))
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        let done = self
            .target(&Charge::new(policy, key, 0))
            .map(|one| one.store.reset(one.key));
        Box::pin(std::future::ready(done))
    }
}

impl Default for Memory {
    /// Room for 100,000 keys per policy.
    fn default() -> Self {
        Self::with_capacity(100_000)
    }
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory")
            .field("capacity", &self.capacity)
            .finish_non_exhaustive()
    }
}
