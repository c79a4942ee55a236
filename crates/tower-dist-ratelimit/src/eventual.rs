mod exchange;

use std::{
    collections::HashMap,
    slice,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{runtime, time::Instant};

use self::exchange::Exchange;
use crate::{
    BuildError, Decision, Decisions, Policy, Quota, Source,
    algorithm::saturating_nanos,
    backend::{
        Answer, Backend, BackendError, BoxFuture, Charge, JointDecision, Memory, OwnedCharge,
        PolicyId,
    },
    background::Background,
    register,
    terms::Terms,
};

/// Maximum number of keys of one policy that are decided locally. The backend decides the requests of further keys.
/// Concurrent first requests can exceed the maximum slightly: the check and the insertion take the lock separately.
const MAX_KEYS: usize = 10_000;

/// Usually decides locally, and reports the used tokens to the backend afterwards. At each successful exchange with the
/// backend, this instance also learns the tokens that other instances have used.
pub(crate) struct Eventual {
    shared: Arc<SharedCounts>,
    created: Instant,
    period: Duration,
    /// One exchange task per recently used key that is decided locally. Dropping this aborts the tasks.
    exchanges: Background,
}

/// State shared with exchange tasks.
struct SharedCounts {
    inner: Arc<dyn Backend>,
    /// This process's copy of the backend's counts.
    memory: Memory,
    policies: Vec<Arc<PolicyUsage>>,
    timeout: Duration,
}

/// A policy, and the unsent [usage](KeyUsage) of its keys.
struct PolicyUsage {
    /// The policy's terms, with its id in the backend.
    terms: Terms,
    /// The policy's id in the local memory.
    own: PolicyId,
    keys: Mutex<HashMap<Box<[u8]>, KeyUsage>>,
}

/// The used tokens of one key that were not yet reported to the backend.
#[derive(Default)]
struct KeyUsage {
    unsent: u64,
    /// The own quota of the charge that was added last. `None` if that charge had no own quota, or if an exchange has
    /// begun since.
    quota: Option<Quota>,
    /// Whether [`add`](Self::add) was called since the last exchange began.
    is_active: bool,
}

impl KeyUsage {
    fn add(&mut self, charge: &Charge<'_>, tokens: u64) {
        self.unsent = self.unsent.saturating_add(tokens);
        self.quota = charge.quota;
        self.is_active = true;
    }
}

impl PolicyUsage {
    fn keys(&self) -> MutexGuard<'_, HashMap<Box<[u8]>, KeyUsage>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds tokens to the unsent usage of a key. Returns `true` if the key is new. It then needs an exchange task.
    fn add(&self, charge: &Charge<'_>, tokens: u64) -> bool {
        let mut keys = self.keys();
        if let Some(usage) = keys.get_mut(charge.key) {
            usage.add(charge, tokens);
            return false;
        }
        let usage = keys.entry(charge.key.into()).or_default();
        usage.add(charge, tokens);
        true
    }

    /// Applies a settlement to the unsent usage. Returns the rest of `delta`, which the backend has to settle.
    fn correct(&self, charge: &Charge<'_>, delta: i64) -> i64 {
        let mut keys = self.keys();
        let Some(usage) = keys.get_mut(charge.key) else {
            return delta;
        };
        if delta >= 0 {
            usage.add(charge, delta.unsigned_abs());
            return 0;
        }
        let refund = delta.unsigned_abs().min(charge.cost);
        let unsent = refund.min(usage.unsent);
        usage.unsent -= unsent;
        i64::try_from(refund - unsent).map_or(i64::MIN, |rest| -rest)
    }
}

impl Eventual {
    /// Wraps a backend in which `policies` are registered as `ids`. While a key is in use, exchanges its usage with the
    /// backend about once per `period`.
    ///
    /// # Errors
    ///
    /// Fails if a [`Memory`] does not support these policies.
    pub(crate) fn new(
        inner: Arc<dyn Backend>,
        policies: &[Policy],
        ids: &[PolicyId],
        period: Duration,
        timeout: Duration,
    ) -> Result<Self, BuildError> {
        let memory = Memory::default();
        let own = register::register(&memory, policies)?;
        let policies = Terms::all(policies, ids).into_iter().zip(own);
        let policies = policies.map(|(terms, own)| {
            Arc::new(PolicyUsage {
                terms,
                own,
                keys: Mutex::default(),
            })
        });
        Ok(Self {
            shared: Arc::new(SharedCounts {
                inner,
                memory,
                policies: policies.collect(),
                timeout,
            }),
            created: Instant::now(),
            period,
            exchanges: Background::default(),
        })
    }

    /// Returns the wait between the first exchange of a key and the second: a pseudorandom part of a period. The wait
    /// usually separates the exchanges of instances whose first requests arrive together. Otherwise, these instances
    /// could exceed the limit together in every period. The wait is computed from the time since creation, so tests can
    /// reproduce it.
    fn phase(&self) -> Duration {
        let now = saturating_nanos(self.created.elapsed());
        // The two multiplications of SplitMix64.
        let mixed = (now ^ now >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let thousandths = u32::try_from(mixed >> 32).unwrap_or_default() % 1_000;
        self.period * thousandths / 1_000
    }

    /// Spawns a task that exchanges the usage of a key while the key is in use.
    #[cold]
    fn exchange(&self, policy: &Arc<PolicyUsage>, key: &[u8]) {
        let exchange = Exchange {
            shared: Arc::clone(&self.shared),
            policy: Arc::clone(policy),
            key: key.into(),
            is_over: false,
        };
        let exchange = exchange.run(self.phase(), self.period);
        self.exchanges.spawn(usize::MAX, Box::pin(exchange));
    }

    fn policy(&self, id: PolicyId) -> Option<&Arc<PolicyUsage>> {
        let mut policies = self.shared.policies.iter();
        policies.find(|policy| policy.terms.id == id)
    }

    /// Converts charges to the local memory's policy ids. Returns `None` if a charge cannot be counted locally. Then
    /// its policy is unknown, its key is too long, or the policy already has the maximum number of other keys.
    fn own<'a>(&self, charges: &[Charge<'a>]) -> Option<Vec<Charge<'a>>> {
        let own = charges.iter().map(|charge| {
            let policy = self.policy(charge.policy)?;
            let keys = policy.keys();
            let has_room = charge.key.len() <= OwnedCharge::LONGEST_KEY
                && (keys.len() < MAX_KEYS || keys.contains_key(charge.key));
            let own = Charge::new(policy.own, charge.key, charge.cost);
            has_room.then_some(own.with(charge.quota))
        });
        own.collect()
    }
}

/// Awaits the answers to settlements. Returns the first error, if there is one.
async fn all(answers: Vec<Answer>) -> Result<JointDecision, BackendError> {
    let mut all = Ok(());
    for answer in answers {
        all = all.and(match answer {
            Answer::Done(_) => Ok(()),
            Answer::Failed(error) => Err(error),
            Answer::Later(answer) => answer.await.map(|_| ()),
        });
    }
    all.map(|()| JointDecision {
        allowed: true,
        decisions: Decisions::default(),
    })
}

impl Backend for Eventual {
    fn register(&self, policies: &[Policy]) -> Result<Vec<PolicyId>, BuildError> {
        self.shared.inner.register(policies)
    }

    fn acquire(&self, charges: &[Charge<'_>], out: &mut [Decision]) -> Answer {
        let SharedCounts { inner, memory, .. } = &*self.shared;
        let (Ok(_), Some(own)) = (runtime::Handle::try_current(), self.own(charges)) else {
            return inner.acquire(charges, out);
        };
        let answer = memory.acquire(&own, out);
        let Answer::Done(allowed) = answer else {
            return answer;
        };
        for charge in charges {
            let cost = if allowed { charge.cost } else { 0 };
            if let Some(policy) = self.policy(charge.policy)
                && policy.add(charge, cost)
            {
                self.exchange(policy, charge.key);
            }
        }
        for decision in out {
            decision.source = Source::Eventual;
        }
        answer
    }

    fn settle(&self, charges: &[Charge<'_>], delta: i64) -> Answer {
        let SharedCounts { inner, memory, .. } = &*self.shared;
        let Some(own) = self.own(charges) else {
            return inner.settle(charges, delta);
        };
        // A `Memory` settles in the call, so its answer can be dropped.
        drop(memory.settle(&own, delta));
        // Unsent usage is corrected here, and the backend receives the rest.
        let rests = charges.iter().filter_map(|charge| {
            let policy = self.policy(charge.policy);
            let rest = policy.map_or(delta, |policy| policy.correct(charge, delta));
            (rest != 0).then(|| inner.settle(slice::from_ref(charge), rest))
        });
        let mut rests: Vec<Answer> = rests.collect();
        match rests.len() {
            0 | 1 => rests.pop().unwrap_or(Answer::Done(true)),
            _ => Answer::Later(Box::pin(all(rests))),
        }
    }

    fn reset(&self, policy: PolicyId, key: &[u8]) -> BoxFuture<'static, Result<(), BackendError>> {
        if let Some(policy) = self.policy(policy) {
            // A `Memory` resets in the call itself, so the returned future can be dropped.
            drop(self.shared.memory.reset(policy.own, key));
            if let Some(usage) = policy.keys().get_mut(key) {
                usage.unsent = 0;
            }
        }
        self.shared.inner.reset(policy, key)
    }
}
